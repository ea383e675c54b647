#pragma once

#include <cstddef>

/// Which edges between blocks of the code that was compiled with -fsanitize-coverage=trace-pc a call goes over, and
/// about how often. For one thread.
namespace lockstep::fuzz::coverage {

/// Forgets the last call.
void begin();
/// Adds what went by since begin() to what was ever seen. True when an edge is new, or was taken a number of times that
/// falls into a new class (1, 2, 3, 4-7, 8-15, 16-31, 32-127, more).
bool add();
/// Number of edges ever seen; of those that share a place in the table of 2^18, one is counted.
size_t num_edges();
/// Forgets everything.
void clear();

}  // namespace lockstep::fuzz::coverage
