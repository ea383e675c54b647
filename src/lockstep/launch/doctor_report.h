#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

enum class Verdict {
  Ok,
  Warn,  ///< works, but something will be missed or slow
  Fail,  ///< a run will not work
};

/// One line of `lockstep doctor`.
struct Finding {
  Verdict verdict = Verdict::Ok;
  std::string subject;      ///< "open files"
  std::string text;         ///< what was found, with the values
  std::string remedy = {};  ///< what to change; empty when Ok
  bool operator==(const Finding&) const = default;
};
using Findings = std::vector<Finding>;

/// "OK    open files: 1048576\n"; a remedy follows on a line of its own.
std::string finding_text(const Finding& finding);
/// "3 OK, 1 warning, 1 FAIL" and a line break.
std::string summary_text(const Findings& findings);
/// 0, or that of Environment (4) when something FAILs.
int doctor_exit_code(const Findings& findings);

}  // namespace lockstep::launch
