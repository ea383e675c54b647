#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/options/value.h"
#include "lockstep/recipes/sft_cli.h"

namespace lockstep::recipes {
namespace {

using options::Fields;

/// A row of tests/data/flags/sft.tsv: what trl 1.16 itself says about a flag of `trl sft`.
struct TrlFlag {
  std::string key, type, initial;
};

std::vector<TrlFlag> trl_flags() {
  std::ifstream file(std::string(LOCKSTEP_TEST_DATA) + "/flags/sft.tsv");
  std::vector<TrlFlag> flags;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    TrlFlag flag;
    std::getline(cells, flag.key, '\t');
    std::getline(cells, flag.type, '\t');
    std::getline(cells, flag.initial, '\t');
    flag.key = flag.key.substr(2);
    flags.push_back(flag);
  }
  return flags;
}

/// Python's repr of a default as our own text.
std::string from_python(const std::string& text) {
  if (text == "None") return "none";
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "[]" || text == "''") return "";
  if (text.starts_with('\'')) return text.substr(1, text.size() - 2);
  return text;
}

/// type_name() of what trl takes; empty where it takes texts of many kinds.
std::string kind_of(const std::string& type) {
  if (type.starts_with("int") && type.find("str") == std::string::npos) return "int";
  if (type.starts_with("float")) return "float";
  if (type.starts_with("bool")) return "bool";
  return type.starts_with("list[str]") ? "list" : "";
}

/// Where lockstep's default is meant to differ from trl's. trl's own value is still taken silently.
const std::set<std::string> kOwnDefaults = {"gradient_checkpointing"};

TEST(SftFlags, TheListOfTrlIsComplete) { EXPECT_EQ(trl_flags().size(), 163U); }

TEST(SftFlags, EachFlagOfTrlIsKnownWithItsDefault) {
  SftOptions sft;
  const Fields fields = options::collect(sft);
  for (const TrlFlag& flag : trl_flags()) {
    const options::Field* field = options::find(fields, flag.key);
    ASSERT_NE(field, nullptr) << flag.key;
    if (kOwnDefaults.contains(flag.key)) continue;
    const auto same = options::parse_value(*field, from_python(flag.initial));
    const bool is_empty_list = flag.initial == "[]" && options::to_text(field->initial).empty();
    const bool is_none = (flag.initial == "None" || flag.initial == "'none'") && options::to_text(field->initial) == "none";
    EXPECT_TRUE(is_empty_list || is_none || (same && *same == field->initial))
        << flag.key << ": trl has " << flag.initial << ", lockstep " << options::to_text(field->initial);
  }
}

TEST(SftFlags, EachFlagTakesTheSameKindOfValue) {
  SftOptions sft;
  const Fields fields = options::collect(sft);
  for (const TrlFlag& flag : trl_flags()) {
    const std::string kind = kind_of(flag.type);
    if (kind.empty()) continue;
    EXPECT_EQ(options::type_name(*options::find(fields, flag.key)), kind) << flag.key;
  }
}

TEST(SftFlags, EachDefaultOfTrlIsAcceptedSilently) {
  for (const TrlFlag& flag : trl_flags()) {
    if (flag.initial == "None") continue;
    std::vector<std::string> args = {"--model_name_or_path", "M", "--dataset_name", "D"};
    args.push_back(flag.initial == "[]" ? "--" + flag.key : "--" + flag.key + "=" + from_python(flag.initial));
    const ParsedSft parsed = parse_sft(args, {});
    EXPECT_TRUE(parsed.notes.empty()) << flag.key;
  }
}

TEST(SftFlags, EachBooleanThatIsTrueHasItsNegation) {
  for (const TrlFlag& flag : trl_flags()) {
    if (flag.initial != "True" || kOwnDefaults.contains(flag.key)) continue;
    SftOptions sft;
    const Fields fields = options::collect(sft);
    const std::vector<std::string> args = {"--no_" + flag.key};
    const options::Resolved resolved = options::resolve(args, fields);
    EXPECT_EQ(options::to_text(options::find(fields, flag.key)->value()), "false") << flag.key;
  }
}

TEST(SftFlags, EveryReasonIsThere) {
  SftOptions sft;
  std::set<std::string> seen;
  for (const options::Field& field : options::collect(sft)) {
    const options::Spec& spec = field.spec;
    EXPECT_TRUE(seen.insert(spec.key).second) << spec.key << " is declared twice";
    EXPECT_TRUE(spec.help.ends_with('.')) << spec.key;
    EXPECT_EQ(spec.reason.empty(), spec.kind == options::Class::Works) << spec.key;
    EXPECT_EQ(spec.remedy.ends_with('.'), spec.kind == options::Class::Refused) << spec.key;
  }
}

}  // namespace
}  // namespace lockstep::recipes
