#pragma once

#include "lockstep/data/row_reader.h"

namespace lockstep::data {

/// Rows of a Parquet file, or of an Arrow file or stream. Lists, structs, maps and dictionaries become JSON; columns of the
/// type arrow.json (datasets' Json) become what they hold. Loads lockstep_arrow.so, which lies beside the program or library, or
/// where it was built. Throws Error{Environment} when this build has none.
std::unique_ptr<RowReader> open_arrow_rows(const std::filesystem::path& file);

}  // namespace lockstep::data
