#include "lockstep/launch/run_command_line.h"

#include "lockstep/launch/run_help.h"
#include "lockstep/launch/run_scan.h"
#include "lockstep/options/check.h"
#include "lockstep/options/command_line.h"
#include "lockstep/options/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep::launch {

namespace {

using options::Field;
using options::Origin;
using options::Settings;

constexpr std::array<std::string_view, 4> kWithoutVariable = {"logs_specs", "numa_binding", "print_completion",
                                                              "exit_barrier_timeout"};

std::string variable_of(const Field& field) {
  std::string name = "PET_" + field.spec.key;
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

void add(const Field& field, const std::string& text, const Origin& origin, Settings& settings,
         options::Problems& problems) {
  if (auto value = options::parse_value(field, text)) {
    settings.push_back({field.spec.key, std::move(*value), origin});
  } else {
    problems.add(fmt::format("{}: must be {}.", options::value_with_origin(field.spec.key, text, origin),
                             options::expected_words(field)));
  }
}

/// torchrun reads variables of flags without a value as whole numbers: anything but 0 is on.
std::string boolean_text(const std::string& text) {
  const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char letter) {
    return std::isdigit(letter) != 0;
  });
  if (!is_number) return text;
  return text.find_first_not_of('0') == std::string::npos ? "false" : "true";
}

void add_variables(const options::Fields& fields, const Environment& environment, Settings& settings,
                   options::Problems& problems) {
  for (const Field& field : fields) {
    const bool has_none = std::find(kWithoutVariable.begin(), kWithoutVariable.end(), field.spec.key) !=
                          kWithoutVariable.end();
    const auto found = environment.find(variable_of(field));
    if (has_none || found == environment.end()) continue;
    const Origin origin{.kind = Origin::Kind::File, .file = found->first, .line = 0};
    add(field, options::is_boolean(field) ? boolean_text(found->second) : found->second, origin, settings, problems);
  }
}

constexpr std::string_view kNoProgram =
    "there is no program to start. Write it after the flags: lockstep run --nproc_per_node 2 train.py. See lockstep "
    "run --help.";

}  // namespace

bool ParsedRun::is_given(std::string_view key) const {
  return options::origin_of(origins, key).kind != Origin::Kind::Default;
}

ParsedRun parse_run(std::span<const std::string> args, const Environment& environment, const options::Page& page) {
  ParsedRun parsed;
  const options::Fields fields = options::collect(parsed.options);
  options::Problems problems;
  RunWords words = scan_run(args, fields, problems);
  if (words.help != RunWords::Help::None) {
    parsed.text = run_help(fields, page);
    return parsed;
  }
  const bool is_whole = problems.empty();
  Settings settings;
  add_variables(fields, environment, settings, problems);
  const Origin origin{.kind = Origin::Kind::CommandLine, .file = {}, .line = 0};
  for (const RunWords::Flag& flag : words.flags) {
    add(*options::find(fields, flag.key), flag.value.value_or("true"), origin, settings, problems);
  }
  options::apply(settings, fields, parsed.origins);
  options::check(fields, parsed.origins, problems, parsed.notes);
  if (parsed.options.module && parsed.options.no_python) {
    problems.add("--module and --no_python contradict each other: a module is run by Python. Leave one out.");
  }
  const bool wants_completion = parsed.options.print_completion.has_value();
  if (is_whole && !wants_completion && words.program.empty()) problems.add(std::string(kNoProgram));
  problems.throw_if_any();
  if (wants_completion) parsed.text = completion_script(fields, *parsed.options.print_completion);
  parsed.program = std::move(words.program);
  return parsed;
}

}  // namespace lockstep::launch
