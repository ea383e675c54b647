#pragma once

#include <cstddef>

/// The C interface of lockstep_arrow.so, which alone is linked to the Arrow libraries. Loaded by data/arrow_rows.cpp when
/// the first Parquet or Arrow file is met. One reader per thread; its texts live until the next call on it.
extern "C" {

struct lockstep_arrow_rows;

/// Never null. Whether it failed is known from the first lockstep_arrow_next().
lockstep_arrow_rows* lockstep_arrow_open(const char* path);
/// 1: `json` is the next row, an object with all columns; 0: there are no more; -1: see lockstep_arrow_error().
int lockstep_arrow_next(lockstep_arrow_rows* rows, const char** json, size_t* size);
const char* lockstep_arrow_error(const lockstep_arrow_rows* rows);
void lockstep_arrow_close(lockstep_arrow_rows* rows);
}
