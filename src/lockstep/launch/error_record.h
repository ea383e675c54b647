#pragma once

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// What a failing worker leaves in the run folder before it ends with its kind's exit code.
struct ErrorRecord {
  ErrorKind kind = ErrorKind::Internal;
  std::string message = {};
  int world_rank = 0;
  int pid = 0;
  std::string phase = {};
  double time = 0;  ///< seconds since 1970
};

/// <run_folder>/error-rank<k>.json
fs::path error_record_path(const fs::path& run_folder, int world_rank);

/// Atomic: the front program sees the whole record or none. Throws Error{Environment}.
void write_error_record(const fs::path& run_folder, const ErrorRecord& record);

/// Pure. What the text of a record says. Throws for one that cannot be understood.
ErrorRecord parse_error_record(std::string_view text, int world_rank);

/// Absent when there is no record. One that cannot be read is returned as an Internal error that says so: that a
/// worker tried to report must not be lost.
std::optional<ErrorRecord> read_error_record(const fs::path& run_folder, int world_rank);

/// Seconds since 1970, the clock of ErrorRecord::time.
double unix_seconds();

}  // namespace lockstep::launch
