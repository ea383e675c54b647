#include "lockstep/options/markdown.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/options/value.h"

namespace lockstep::options {
namespace {

/// A cell must not end the row.
std::string cell(std::string_view text) {
  std::string result;
  for (char letter : text) {
    if (letter == '|') result += '\\';
    result += letter;
  }
  return result;
}

std::string class_name(Class kind) {
  switch (kind) {
    case Class::NoObject: return "no object";
    case Class::Refused: return "refused";
    case Class::Works: break;
  }
  return "works";
}

std::string meaning(const Field& field) {
  const Spec& spec = field.spec;
  std::string text = spec.help;
  if (const std::string range = range_words(spec); !range.empty()) text += fmt::format(" Must be {}.", range);
  if (!spec.choices.empty()) text += fmt::format(" One of {}.", fmt::join(spec.choices, ", "));
  if (!spec.refused_values.empty()) {
    text += fmt::format(" Refused: {} ({}).", fmt::join(spec.refused_values, ", "), spec.refused_values_reason);
  }
  if (spec.kind == Class::NoObject) text += fmt::format(" No effect: {}.", spec.reason);
  if (spec.kind == Class::Refused) text += fmt::format(" Refused: {}. {}", spec.reason, spec.remedy);
  if (spec.is_hidden) text += " For debugging; in --help_all only.";
  return text;
}

std::string row(const Field& field) {
  const std::string initial = default_text(field);
  const std::string type = type_name(field) + (field.spec.unit.empty() ? "" : ", " + field.spec.unit);
  return fmt::format("| `--{}` | {} | {} | {} | {} |\n", field.spec.key, type,
                     initial.empty() ? "" : "`" + cell(initial) + "`", class_name(field.spec.kind),
                     cell(meaning(field)));
}

std::string names(const Fields& fields, Class kind) {
  Words found;
  for (const Field& field : fields) {
    if (field.spec.kind == kind) found.push_back("`" + field.spec.key + "`");
  }
  return fmt::format("**{}** ({}): {}\n\n", class_name(kind), found.size(), fmt::join(found, ", "));
}

}  // namespace

std::string to_markdown(const Fields& fields, std::string_view command) {
  std::string text = fmt::format("## lockstep {}\n\n", command);
  text += names(fields, Class::Works) + names(fields, Class::NoObject) + names(fields, Class::Refused);
  std::string group;
  for (const Field& field : fields) {
    if (field.spec.group != group) {
      text += group.empty() ? "" : "\n";
      group = field.spec.group;
      text += fmt::format("### {}\n\n| flag | type | default | class | meaning |\n", group);
      text += "| --- | --- | --- | --- | --- |\n";
    }
    text += row(field);
  }
  return text;
}

}  // namespace lockstep::options
