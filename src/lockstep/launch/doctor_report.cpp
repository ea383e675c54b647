#include "lockstep/launch/doctor_report.h"

#include "lockstep/base/error.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok: return "OK  ";
    case Verdict::Warn: return "warn";
    case Verdict::Fail: return "FAIL";
  }
  return "FAIL";
}

auto count(const Findings& findings, Verdict verdict) {
  return std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.verdict == verdict; });
}

}  // namespace

std::string finding_text(const Finding& finding) {
  std::string text = fmt::format("{}  {}: {}\n", word(finding.verdict), finding.subject, finding.text);
  if (!finding.remedy.empty()) text += fmt::format("      -> {}\n", finding.remedy);
  return text;
}

std::string summary_text(const Findings& findings) {
  const auto warnings = count(findings, Verdict::Warn);
  return fmt::format("{} OK, {} warning{}, {} FAIL\n", count(findings, Verdict::Ok), warnings, warnings == 1 ? "" : "s",
                     count(findings, Verdict::Fail));
}

int doctor_exit_code(const Findings& findings) {
  return count(findings, Verdict::Fail) > 0 ? exit_code(ErrorKind::Environment) : 0;
}

}  // namespace lockstep::launch
