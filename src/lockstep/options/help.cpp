#include "lockstep/options/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

#include "lockstep/options/value.h"

namespace lockstep::options {
namespace {

constexpr size_t kIndent = 2;
constexpr size_t kFlagColumn = 39;

/// What follows the flag: its choices if they are short, its unit, or its type.
std::string value_word(const Field& field) {
  const Spec& spec = field.spec;
  if (is_boolean(field)) return "[BOOL]";
  if (spec.unit == "path") return "PATH";
  if (!spec.unit.empty() && spec.unit.find(' ') == std::string::npos) {
    std::string unit = spec.unit;
    for (char& letter : unit) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    return unit;
  }
  const std::string type = type_name(field);
  if (type == "int") return "N";
  if (type == "float") return "X";
  if (type == "list") return "WORD ...";
  return type == "json" ? "JSON" : "WORD";
}

std::string description(const Field& field) {
  const Spec& spec = field.spec;
  std::string text = spec.help;
  if (!spec.choices.empty()) text += fmt::format(" One of {}.", fmt::join(spec.choices, ", "));
  if (spec.kind == Class::NoObject) text += fmt::format(" No effect: {}.", spec.reason);
  if (spec.kind == Class::Refused) text += fmt::format(" Refused: {}. {}", spec.reason, spec.remedy);
  const std::string initial = default_text(field);
  if (!initial.empty()) text += fmt::format(" [{}]", initial);
  return text;
}

std::string flag_line(const Field& field, const Page& page) {
  return two_columns(fmt::format("--{} {}", field.spec.key, value_word(field)), description(field), kIndent,
                     kFlagColumn, page);
}

/// The fields that `wanted` picks, under a heading for each group.
template <class Wanted>
std::string by_group(const Fields& fields, const Page& page, Wanted wanted) {
  std::string text;
  std::string group;
  for (const Field& field : fields) {
    if (!wanted(field)) continue;
    if (field.spec.group != group) {
      group = field.spec.group;
      text += "\n" + heading(group, page);
    }
    text += flag_line(field, page);
  }
  return text;
}

std::string names_of(const Fields& fields, Class kind, std::string_view title, const Page& page) {
  Words names;
  for (const Field& field : fields) {
    if (field.spec.kind == kind && !field.spec.is_hidden) names.push_back(field.spec.key);
  }
  if (names.empty()) return {};
  std::string text = "\n" + heading(title, page);
  const size_t width = page.width > kIndent + 20 ? page.width - kIndent : 20;
  for (const std::string& line : wrap(fmt::format("{}", fmt::join(names, " ")), width)) text += "  " + line + "\n";
  return text;
}

std::string own_flags(const Page& page) {
  std::string text = "\n" + heading("This command", page);
  text += two_columns("--config FILE", "Read options from a YAML file, and environment variables from its env:. The "
                      "command line goes before the file.", kIndent, kFlagColumn, page);
  text += two_columns("--dry_run", "Show every option with its origin and the plan of the run, then stop.", kIndent,
                      kFlagColumn, page);
  text += two_columns("-h, --help", "This page.", kIndent, kFlagColumn, page);
  text += two_columns("--help_all", "Every flag, also those without effect, refused, or meant for debugging.", kIndent,
                      kFlagColumn, page);
  return text;
}

std::string value_line(const Field& field, const Origins& origins) {
  const Origin origin = origin_of(origins, field.spec.key);
  std::string value = shown_value(field);
  if (value.empty()) value = "''";
  if (origin.kind == Origin::Kind::Default && is_optional(field) && value == "none") value = default_text(field);
  if (origin.kind != Origin::Kind::Default) value = fmt::format("{:<24} {}", value, origin.text());
  // Not wrapped: values are shown as they are, blanks included.
  return fmt::format("{:{}}{:<{}}{}\n", "", kIndent, field.spec.key, kFlagColumn, value);
}

}  // namespace

std::string help_text(const Fields& fields, std::string_view introduction, Help help, const Page& page,
                      std::string_view known_from) {
  std::string text(introduction);
  if (help == Help::All) {
    text += by_group(fields, page, [](const Field&) { return true; });
    return text + own_flags(page);
  }
  text += by_group(fields, page,
                   [](const Field& field) { return field.spec.kind == Class::Works && !field.spec.is_hidden; });
  text += own_flags(page);
  text += names_of(fields, Class::NoObject, fmt::format("Known from {}, accepted without effect", known_from), page);
  text += names_of(fields, Class::Refused,
                   fmt::format("Known from {}, refused unless at the default (--help_all says why)", known_from), page);
  return text;
}

std::string resolved_text(const Fields& fields, const Origins& origins, const Page& page) {
  std::string given;
  for (const Field& field : fields) {
    if (origin_of(origins, field.spec.key).kind != Origin::Kind::Default) given += value_line(field, origins);
  }
  std::string text = heading("Given", page) + (given.empty() ? "  nothing\n" : given);
  std::string group;
  for (const Field& field : fields) {
    if (field.spec.kind != Class::Works || origin_of(origins, field.spec.key).kind != Origin::Kind::Default) continue;
    if (field.spec.is_hidden) continue;
    if (field.spec.group != group) {
      group = field.spec.group;
      text += "\n" + heading(group + " (defaults)", page);
    }
    text += value_line(field, origins);
  }
  return text;
}

}  // namespace lockstep::options
