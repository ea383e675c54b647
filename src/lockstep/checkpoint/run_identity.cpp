#include "lockstep/checkpoint/run_identity.h"

#include "lockstep/base/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace lockstep::checkpoint {
namespace {

constexpr const char* kAbsent = "(absent)";

using Leaves = std::map<std::string, nlohmann::json>;

/// Tables are descended into; everything else, empty tables and lists too, is a value.
void collect_leaves(const nlohmann::json& value, const std::string& field, Leaves& leaves) {
  if (!value.is_object() || (value.empty() && !field.empty())) {
    leaves.emplace(field, value);
    return;
  }
  for (const auto& [key, inner] : value.items()) collect_leaves(inner, field.empty() ? key : field + "." + key, leaves);
}

Leaves leaves_of(const std::string& text, const char* whose_run) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (!json.is_object()) throw std::invalid_argument("it is not a table");
    Leaves leaves;
    collect_leaves(json, "", leaves);
    return leaves;
  } catch (const std::exception& problem) {
    throw Error::data("run.json of the {} run cannot be read ({}). Resume from another checkpoint.", whose_run,
                      problem.what());
  }
}

bool names_field(std::span<const std::string> names, const std::string& field) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return field == name || (field.starts_with(name) && field[name.size()] == '.');
  });
}

}  // namespace

RunComparison compare_runs(const std::string& stored, const std::string& current, const RunFields& fields) {
  const Leaves before = leaves_of(stored, "stored");
  const Leaves now = leaves_of(current, "present");
  Leaves all = before;
  all.insert(now.begin(), now.end());
  RunComparison comparison;
  for (const auto& [field, ignored_value] : all) {
    const auto a = before.find(field), b = now.find(field);
    if (a != before.end() && b != now.end() && a->second == b->second) continue;
    if (names_field(fields.ignored, field)) continue;
    RunDifference difference{.field = field, .stored = a == before.end() ? kAbsent : a->second.dump(),
                             .current = b == now.end() ? kAbsent : b->second.dump()};
    const bool defines = names_field(fields.must_equal, field);
    (defines ? comparison.must_equal : comparison.changed).push_back(std::move(difference));
  }
  return comparison;
}

std::string describe(std::span<const RunDifference> differences) {
  std::string text;
  for (const RunDifference& one : differences) {
    text += fmt::format("{}  {}: {} -> {}", text.empty() ? "" : "\n", one.field, one.stored, one.current);
  }
  return text;
}

void require_same_run(const RunComparison& comparison, const std::string& checkpoint) {
  if (comparison.must_equal.empty()) return;
  throw Error::usage("--resume_from_checkpoint {}: it belongs to another run; these define the result and differ (stored -> "
                     "now):\n{}\nGive the stored values, or start a new run in another --output_dir, without "
                     "--resume_from_checkpoint.",
                     checkpoint, describe(comparison.must_equal));
}

}  // namespace lockstep::checkpoint
