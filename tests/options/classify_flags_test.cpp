#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/options/value.h"
#include "lockstep/recipes/classify_cli.h"

namespace lockstep::recipes {
namespace {

using options::Fields;

/// A row of tests/data/flags/training_arguments.tsv: what transformers 5.24 says about a field of TrainingArguments.
struct TransformersFlag {
  std::string key, type, initial;
};

std::vector<TransformersFlag> transformers_flags() {
  std::ifstream file(std::string(LOCKSTEP_TEST_DATA) + "/flags/training_arguments.tsv");
  std::vector<TransformersFlag> flags;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    TransformersFlag flag;
    std::getline(cells, flag.key, '\t');
    std::getline(cells, flag.type, '\t');
    std::getline(cells, flag.initial, '\t');
    flag.key = flag.key.substr(2);
    flags.push_back(flag);
  }
  return flags;
}

/// Python's repr of a default as our own text.
std::string own_text(const std::string& text) {
  if (text == "None") return "none";
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "[]" || text == "''") return "";
  if (text.starts_with('\'')) return text.substr(1, text.size() - 2);
  return text;
}

ParsedClassify parse_with(std::vector<std::string> more) {
  std::vector<std::string> args = {"--model_name_or_path", "M", "--dataset_name", "D"};
  args.insert(args.end(), more.begin(), more.end());
  return parse_classify(args, {.page = {}, .cores = 4});
}

TEST(ClassifyFlags, TheListOfTransformersIsComplete) { EXPECT_EQ(transformers_flags().size(), 114U); }

TEST(ClassifyFlags, EachFieldOfTrainingArgumentsIsKnownWithItsDefault) {
  ClassifyOptions classify;
  const Fields fields = options::collect(classify);
  for (const TransformersFlag& flag : transformers_flags()) {
    const options::Field* field = options::find(fields, flag.key);
    ASSERT_NE(field, nullptr) << flag.key;
    const auto same = options::parse_value(*field, own_text(flag.initial));
    const bool is_empty_list = flag.initial == "[]" && options::to_text(field->initial).empty();
    const bool is_none = (flag.initial == "None" || flag.initial == "'none'") && options::to_text(field->initial) == "none";
    EXPECT_TRUE(is_empty_list || is_none || (same && *same == field->initial))
        << flag.key << ": transformers has " << flag.initial << ", lockstep " << options::to_text(field->initial);
  }
}

TEST(ClassifyFlags, EachDefaultOfTransformersIsAcceptedSilently) {
  for (const TransformersFlag& flag : transformers_flags()) {
    if (flag.initial == "None") continue;
    const auto parsed =
        parse_with({flag.initial == "[]" ? "--" + flag.key : "--" + flag.key + "=" + own_text(flag.initial)});
    EXPECT_TRUE(parsed.notes.empty()) << flag.key << ": " << parsed.notes.front();
  }
}

TEST(ClassifyFlags, EveryReasonIsThereAndNoFlagTwice) {
  ClassifyOptions classify;
  std::set<std::string> seen;
  for (const options::Field& field : options::collect(classify)) {
    const options::Spec& spec = field.spec;
    EXPECT_TRUE(seen.insert(spec.key).second) << spec.key << " is declared twice";
    EXPECT_TRUE(spec.help.ends_with('.')) << spec.key;
    EXPECT_EQ(spec.reason.empty(), spec.kind == options::Class::Works) << spec.key;
    EXPECT_EQ(spec.remedy.ends_with('.'), spec.kind == options::Class::Refused) << spec.key;
  }
}

/// What must act, so that a flag does not slip into another class unseen.
TEST(ClassifyFlags, WhatWorks) {
  ClassifyOptions classify;
  const Fields fields = options::collect(classify);
  for (const char* key :
       {"task", "text_column", "problem_type", "label_smoothing_factor", "eval_strategy", "eval_steps", "eval_delay",
        "eval_on_start", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "early_stopping_patience",
        "save_strategy", "save_steps", "save_total_limit", "save_only_model", "resume_from_checkpoint", "report_to",
        "logging_dir", "do_train", "do_eval", "do_predict", "predictions", "prediction_loss_only", "optim",
        "lr_scheduler_kwargs", "bf16", "evaluation_strategy", "warmup_ratio"}) {
    const options::Field* field = options::find(fields, key);
    ASSERT_NE(field, nullptr) << key;
    EXPECT_EQ(field->spec.kind, options::Class::Works) << key;
  }
  for (const char* key : {"use_peft", "lora_r", "loss_type", "completion_only_loss"}) {
    EXPECT_EQ(options::find(fields, key), nullptr) << key << " is trl's";
  }
}

TEST(ClassifyFlags, TheSectionOfTheDocsHasARowForEveryOption) {
  ClassifyOptions classify;
  const std::string page = classify_markdown();
  EXPECT_TRUE(page.starts_with("## lockstep classify"));
  for (const options::Field& field : options::collect(classify)) {
    EXPECT_NE(page.find("| `--" + field.spec.key + "` |"), std::string::npos) << field.spec.key;
  }
}

}  // namespace
}  // namespace lockstep::recipes
