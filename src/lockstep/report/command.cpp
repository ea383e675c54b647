#include "lockstep/report/command.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/options/environment.h"
#include "lockstep/options/help.h"
#include "lockstep/options/resolve.h"
#include "lockstep/report/page.h"

#include <cstdio>
#include <fstream>

namespace lockstep::report {
namespace {

constexpr const char* kIntroduction = R"(lockstep report RUN ... [--output FILE.html]

Writes one HTML page about one or several runs: loss, learning rate, gradient norm, throughput, memory, evaluations,
options and where each came from. A RUN is the --output_dir of a run, also of one that is still going on.

  lockstep report out                               one run
  lockstep report out-1 out-2 --output both.html    two, laid over each other
)";

/// Words that are no flag and no flag's value. All flags here take one value.
std::vector<std::string> take_runs(std::vector<std::string>& words) {
  std::vector<std::string> runs, flags;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      runs.insert(runs.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      break;
    }
    const bool is_flag = words[i].size() > 1 && words[i][0] == '-';
    if (!is_flag) {
      runs.push_back(words[i]);
      continue;
    }
    flags.push_back(words[i]);
    const bool takes_next = words[i].find('=') == std::string::npos && words[i].starts_with("--") &&
                            !words[i].starts_with("--help") && words[i] != "--dry_run" && words[i] != "--dry-run";
    if (takes_next && i + 1 < words.size()) flags.push_back(words[++i]);
  }
  words = std::move(flags);
  return runs;
}

/// Nobody's notes are overwritten by a slip of the hand.
void require_own_page(const fs::path& path) {
  std::error_code problem;
  if (!fs::exists(path, problem)) return;
  std::string head(1024, '\0');
  if (fs::is_regular_file(path, problem)) {
    std::ifstream file(path, std::ios::binary);
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    const bool is_empty_file = file.gcount() == 0 && file.eof();
    if (is_empty_file || head.find(kGenerator) != head.npos) return;
  }
  throw Error::usage("--output = {}: is there already and is not a report. Give another name.", path.string());
}

}  // namespace

ParsedReport parse_report(std::span<const std::string> args, const options::Page& page) {
  ParsedReport parsed;
  std::vector<std::string> words(args.begin(), args.end());
  parsed.runs = take_runs(words);
  const options::Fields fields = options::collect(parsed.options);
  options::Resolved resolved = options::resolve(words, fields);
  if (resolved.help != options::Help::None) {
    parsed.text = options::help_text(fields, kIntroduction, resolved.help, page);
    return parsed;
  }
  if (parsed.runs.empty()) resolved.problems.add("No run is named. Give the --output_dir of one or several runs.");
  if (parsed.options.output.empty()) resolved.problems.add("--output is empty. Give the name of the page to write.");
  resolved.problems.throw_if_any();
  return parsed;
}

void write_report(const ParsedReport& parsed) {
  const bool to_stdout = parsed.options.output == "-";
  const fs::path path = expand_user(parsed.options.output);
  if (!to_stdout) require_own_page(path);
  const std::string html = page_html(read_runs(parsed.runs));
  if (to_stdout) {
    fmt::print("{}", html);
  } else {
    write_file_atomically(path, html);
  }
}

int run_report_command(std::span<const std::string> args) {
  const ParsedReport parsed = parse_report(args, options::Environment::of_this_process().page);
  if (parsed.text) {
    fmt::print("{}", *parsed.text);
    return 0;
  }
  write_report(parsed);
  if (parsed.options.output != "-") fmt::print(stderr, "lockstep: wrote {}\n", parsed.options.output);
  return 0;
}

}  // namespace lockstep::report
