#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/options/text_layout.h"
#include "lockstep/report/options.h"

namespace lockstep::report {

struct ParsedReport {
  std::vector<std::string> runs;    ///< as given
  ReportOptions options;
  std::optional<std::string> text;  ///< the help page; then nothing else is to be done
};
/// The words after `lockstep report`: RUN... [--output FILE.html]. Error{Usage} with all that is wrong.
ParsedReport parse_report(std::span<const std::string> args, const options::Page& page);

/// Reads the runs and writes the page, whole or not at all. Error{Usage} if something else than a report is at --output,
/// Error{Data} for a run that cannot be read.
void write_report(const ParsedReport& parsed);

/// `lockstep report` as a whole; returns the exit code, throws Error.
int run_report_command(std::span<const std::string> args);

}  // namespace lockstep::report
