#include "lockstep/recipes/classify_cli.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/optim/schedule.h"

namespace lockstep::recipes {
namespace {

using data::Wanted;
using options::Words;

ParsedClassify classify(Words more, Words start = {"--model_name_or_path", "M", "--dataset_name", "D"}) {
  start.insert(start.end(), more.begin(), more.end());
  return parse_classify(start, {.page = {}, .cores = 4});
}

std::string refusal(Words more, Words start = {"--model_name_or_path", "M", "--dataset_name", "D"}) {
  try {
    classify(std::move(more), std::move(start));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "nothing";
}

TEST(ClassifyCommand, NeedsAModelAndData) {
  const std::string text = refusal({}, {});
  EXPECT_NE(text.find("missing --model_name_or_path"), std::string::npos) << text;
  EXPECT_NE(text.find("missing --dataset_name"), std::string::npos) << text;
  EXPECT_NO_THROW(classify({"--test_file", "t.csv", "--do_predict"}, {"--model_name_or_path", "M"}));
}

TEST(ClassifyCommand, AFlagThatCannotBeReadIsNotMissingAsWell) {
  EXPECT_TRUE(refusal({"--model", "X"}, {"--train_file", "t.csv"}).starts_with("unknown flag --model. It is called --model_name_or_path."));
  EXPECT_TRUE(refusal({"--trian_file", "t.csv"}, {"--model_name_or_path", "M"}).starts_with("unknown flag --trian_file. Did you mean"));
}

TEST(ClassifyCommand, HasTransformersDefaults) {
  const ClassifyOptions options = classify({}).options;
  EXPECT_EQ(options.optim.learning_rate, 5e-5);
  EXPECT_EQ(options.train.logging_steps, 500);
  EXPECT_EQ(options.train.num_train_epochs, 3);
  EXPECT_FALSE(train::computes_in_bf16(options.train));
  EXPECT_EQ(options.checkpoints.save_steps, 500);
}

TEST(ClassifyCommand, TheFoundingProgramsArguments) {
  const ParsedClassify parsed = classify({"--task", "mrpc", "--num_train_epochs", "3", "--per_device_train_batch_size", "8",
                                          "--per_device_eval_batch_size", "8", "--evaluation_strategy", "epoch",
                                          "--save_strategy", "epoch", "--logging_dir", "./logs", "--logging_steps", "10",
                                          "--report_to", "tensorboard"});
  EXPECT_EQ(parsed.options.evaluation.eval_strategy, "epoch");
  EXPECT_EQ(parsed.options.train.logging_dir, "./logs");
  EXPECT_EQ(parsed.notes, Words{"evaluation_strategy = epoch (command line) is an older name: today it is eval_strategy = epoch."});
}

TEST(ClassifyCommand, OlderNamesMoveToTodays) {
  const ParsedClassify parsed =
      classify({"--warmup_ratio", "0.1", "--per_gpu_train_batch_size", "4", "--task_name", "stsb", "--label_column_name", "score",
                "--text_column_names", "sentence1", "--adafactor", "--torch_dtype", "auto", "--train_split_name", "tr"});
  const ClassifyOptions& options = parsed.options;
  EXPECT_EQ(options.optim.warmup_steps, 0.1);
  EXPECT_EQ(options.train.per_device_train_batch_size, 4);
  EXPECT_EQ(options.data.task, "stsb");
  EXPECT_EQ(options.data.label_column, "score");
  EXPECT_EQ(options.data.text_column, "sentence1");
  EXPECT_EQ(options.optim.optim, "adafactor");
  EXPECT_EQ(options.model.dtype, "auto");
  EXPECT_EQ(options.data.dataset_train_split, "tr");
  EXPECT_EQ(parsed.notes.size(), 8U);
  EXPECT_EQ(options::origin_of(parsed.origins, "warmup_steps").text(), "command line");
  EXPECT_EQ(classify({"--do_regression"}).options.data.problem_type, "regression");
  EXPECT_TRUE(classify({"--eval_strategy", "epoch", "--evaluation_strategy", "epoch"}).notes.empty());
}

/// As transformers meant it: every update is warm-up. A warmup_steps of 1 is one update.
TEST(ClassifyCommand, AWarmupRatioOfOneMeansAllUpdates) {
  const ParsedClassify parsed = classify({"--warmup_ratio", "1.0"});
  for (const int64_t total : {1, 3, 115, 4096, 1'000'003}) {
    EXPECT_EQ(optim::warmup_updates(parsed.options.optim.warmup_steps, total), total);
  }
  EXPECT_EQ(parsed.notes, Words{"warmup_ratio = 1 (command line) is an older name: today it is warmup_steps = "
                                "0.9999999999999999."});
  EXPECT_EQ(optim::warmup_updates(classify({"--warmup_steps", "1"}).options.optim.warmup_steps, 115), 1);
}

TEST(ClassifyCommand, WhatHasNoObjectIsNoted) {
  for (const Words& words : std::vector<Words>{{"--group_by_length"}, {"--no_cuda"}, {"--fp16_backend", "apex"},
                                               {"--per_device_eval_batch_size", "64"}, {"--enable_jit_checkpoint"},
                                               {"--dataloader_num_workers", "4"}, {"--eval_accumulation_steps", "2"},
                                               {"--cache_dir", "c"}, {"--pad_to_max_length", "false"}}) {
    const Words notes = classify(words).notes;
    ASSERT_EQ(notes.size(), 1U) << words[0];
    EXPECT_NE(notes[0].find("has no effect"), std::string::npos) << notes[0];
  }
}

TEST(ClassifyCommand, SaysWhatItWillDo) {
  const auto work = [](Words more, Words start = {"--model_name_or_path", "M", "--dataset_name", "D"}) {
    const ClassifyWork found = work_of(classify(std::move(more), std::move(start)).options);
    return std::vector{found.train, found.validation, found.test};
  };
  const auto no = Wanted::No, yes = Wanted::Yes, if_there = Wanted::IfThere;
  EXPECT_EQ(work({}), (std::vector{yes, if_there, no}));
  EXPECT_EQ(work({"--eval_strategy", "epoch"}), (std::vector{yes, yes, no}));
  EXPECT_EQ(work({"--do_train"}), (std::vector{yes, no, no}));
  EXPECT_EQ(work({"--do_train", "--validation_file", "v.csv"}), (std::vector{yes, no, no}));
  EXPECT_EQ(work({"--do_train", "--eval_strategy", "steps"}), (std::vector{yes, yes, no})) << "as transformers";
  EXPECT_EQ(work({"--do_eval"}), (std::vector{no, yes, no}));
  EXPECT_EQ(work({"--do_predict"}), (std::vector{no, no, yes}));
  EXPECT_EQ(work({"--test_file", "t.csv"}), (std::vector{yes, if_there, yes}));
  EXPECT_EQ(work({"--validation_file", "v.csv"}, {"--model_name_or_path", "M"}), (std::vector{no, yes, no}));
  EXPECT_EQ(work({"--train_file", "t.csv"}, {"--model_name_or_path", "M"}), (std::vector{yes, if_there, no}));
}

TEST(ClassifyCommand, TheBestModelMustHaveBeenSaved) {
  const Words best = {"--load_best_model_at_end"};
  const auto with = [&](Words more) {
    more.insert(more.end(), best.begin(), best.end());
    return more;
  };
  EXPECT_NO_THROW(classify(with({"--eval_strategy", "epoch", "--save_strategy", "epoch"})));
  EXPECT_NO_THROW(classify(with({"--eval_strategy", "steps", "--eval_steps", "100", "--save_steps", "200"})));
  EXPECT_NO_THROW(classify(with({"--eval_strategy", "steps", "--eval_steps", "0.1", "--save_steps", "0.3"})));
  EXPECT_NO_THROW(classify(with({"--eval_strategy", "epoch", "--save_strategy", "best", "--metric_for_best_model", "f1"})));
  EXPECT_NO_THROW(classify(with({"--eval_strategy", "epoch", "--save_strategy", "best"}))) << "by the loss";
}

struct BadClassify {
  Words args;
  std::string part;  ///< of the message: the value and the remedy
};
void PrintTo(const BadClassify& item, std::ostream* out) { *out << item.part; }
class ClassifyCommandRefuses : public testing::TestWithParam<BadClassify> {};

TEST_P(ClassifyCommandRefuses, ByNameWithTheReason) {
  const std::string text = refusal(GetParam().args);
  EXPECT_NE(text.find(GetParam().part), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, ClassifyCommandRefuses,
    testing::Values(
        BadClassify{{"--task", "squad"}, "task = squad (command line): must be one of cola, mnli"},
        BadClassify{{"--task", "mrpc", "--problem_type", "regression"}, "task = mrpc (command line) is single_label_classification"},
        BadClassify{{"--problem_type", "ranking"}, "problem_type = ranking (command line): must be one of"},
        BadClassify{{"--text_pair_column", "b"}, "give the first text's column too, with --text_column"},
        BadClassify{{"--text_column", "a", "--text_pair_column", "a"}, "is the text column too"},
        BadClassify{{"--text_column", "a", "--label_column", "a"}, "label_column = a (command line): is a text column too"},
        BadClassify{{"--text_column="}, "text_column = '' (command line): is empty"},
        BadClassify{{"--max_length", "0"}, "max_length = 0 (command line): must be at least 1"},
        BadClassify{{"--max_length", "64", "--max_seq_length", "128"}, "are two names of one option"},
        BadClassify{{"--max_train_samples", "0"}, "max_train_samples = 0 (command line): must be at least 1"},
        BadClassify{{"--eval_strategy", "often"}, "eval_strategy = often (command line): must be one of no, steps, epoch"},
        BadClassify{{"--eval_steps", "0"}, "eval_steps = 0 (command line): must be above 0"},
        BadClassify{{"--eval_delay", "-1"}, "eval_delay = -1 (command line): must be at least 0"},
        BadClassify{{"--save_strategy", "always"}, "must be one of no, steps, epoch, best"},
        BadClassify{{"--save_steps", "-5"}, "save_steps = -5 (command line): must be above 0"},
        BadClassify{{"--save_total_limit", "0"}, "save_total_limit = 0 (command line): must be at least 1"},
        BadClassify{{"--save_strategy", "best", "--metric_for_best_model", "f1"}, "needs evaluations during training. Add --eval_strategy"},
        BadClassify{{"--save_strategy", "best", "--eval_strategy", "epoch"}, "Name a metric with --metric_for_best_model"},
        BadClassify{{"--metric_for_best_model", "eval_runtime"}, "metric_for_best_model = eval_runtime (command line): depends on the clock"},
        BadClassify{{"--lr_scheduler_type", "greedy", "--eval_strategy", "epoch", "--metric_for_best_model", "samples_per_second_mm"}, "depends on the clock"},
        BadClassify{{"--eval_strategy", "steps", "--eval_steps", "2.5"}, "eval_steps = 2.5 (command line): from 1 on these are whole updates. Use 2 or 3"},
        BadClassify{{"--save_steps", "10.5"}, "save_steps = 10.5 (command line): from 1 on these are whole updates"},
        BadClassify{{"--load_best_model_at_end"}, "load_best_model_at_end = true (command line) needs evaluations"},
        BadClassify{{"--load_best_model_at_end", "--eval_strategy", "epoch"}, "Make the two strategies the same"},
        BadClassify{{"--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps", "200"}, "save_steps = 500 is no multiple of eval_steps = 200"},
        BadClassify{{"--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps", "0.2"}, "is no multiple of eval_steps = 0.2"},
        BadClassify{{"--early_stopping_patience", "3"}, "early_stopping_patience = 3 (command line): it counts evaluations"},
        BadClassify{{"--early_stopping_patience", "0"}, "must be at least 1"},
        BadClassify{{"--lr_scheduler_type", "reduce_lr_on_plateau"}, "it changes the rate at evaluations"},
        BadClassify{{"--label_smoothing_factor", "1"}, "label_smoothing_factor = 1 (command line): must be at least 0 and below 1"},
        BadClassify{{"--label_smoothing_factor", "0.1", "--task", "stsb"}, "only rows with one class each"},
        BadClassify{{"--predictions", "p.jsonl"}, "nothing is predicted. Add --do_predict"},
        BadClassify{{"--logging_dir="}, "logging_dir = '' (command line): is empty"},
        BadClassify{{"--resume_from_checkpoint="}, "resume_from_checkpoint = '' (command line): is empty"},
        BadClassify{{"--report_to", "wandb"}, "report_to = wandb (command line): lockstep sends nothing anywhere. Use tensorboard"},
        BadClassify{{"--report_to", "paper"}, "must be one of none, tensorboard, all"},
        BadClassify{{"--evaluation_strategy", "epoch", "--eval_strategy", "steps"}, "are two names of one option"},
        BadClassify{{"--evaluation_strategy", "sometimes"}, "must be one of no, steps, epoch"},
        BadClassify{{"--text_column_names", "a,b"}, "for pairs use --text_column and --text_pair_column"},
        BadClassify{{"--warmup_ratio", "2"}, "warmup_ratio = 2 (command line): must be"},
        BadClassify{{"--save_safetensors", "false"}, "weights are always saved as safetensors"},
        BadClassify{{"--fp16"}, "Use --bf16 true or --bf16 false"},
        BadClassify{{"--bf16_full_eval"}, "evaluation computes in the type that training computes in"},
        BadClassify{{"--ignore_data_skip"}, "goes on where it stopped"},
        BadClassify{{"--push_to_hub"}, "upload the output folder afterwards"},
        BadClassify{{"--tokenizer_name", "bert"}, "Put tokenizer.json into the folder"},
        BadClassify{{"--max_steps", "0"}, "must be -1 (as num_train_epochs says) or at least 1"},
        BadClassify{{"--use_peft"}, "unknown flag --use_peft"},
        BadClassify{{"--evalation_strategy", "no"}, "Did you mean --evaluation_strategy"},
        BadClassify{{"--global_batch_size", "30", "--per_device_train_batch_size", "4"}, "not a multiple of per_device_train_batch_size"}));

TEST(ClassifyCommand, WorkWithoutDataIsRefused) {
  const Words start = {"--model_name_or_path", "M", "--train_file", "t.csv"};
  EXPECT_NE(refusal({"--do_eval"}, start).find("no data to evaluate on: give a file with --validation_file"), std::string::npos);
  EXPECT_NE(refusal({"--do_predict"}, start).find("no data to predict for: give a file with --test_file"), std::string::npos);
  EXPECT_NE(refusal({"--eval_strategy", "epoch"}, start).find("no data to evaluate on"), std::string::npos);
  EXPECT_NE(refusal({"--do_train"}, {"--model_name_or_path", "M", "--test_file", "t.csv"}).find("no data to train on"), std::string::npos);
}

TEST(ClassifyCommand, AllProblemsAreToldAtOnce) {
  const std::string text = refusal({"--task", "x", "--eval_steps", "0", "--nonsense", "1"});
  EXPECT_TRUE(text.starts_with("3 problems:")) << text;
}

TEST(ClassifyCommand, TheFileForTheWorkersComesBackWhole) {
  const ParsedClassify parsed =
      classify({"--learning_rate", "0.1", "--evaluation_strategy", "steps", "--metric_name", "f1", "accuracy", "--eval_steps", "0.25"});
  const ParsedClassify read = load_classify(dump_classify(parsed), "options.json");
  EXPECT_EQ(dump_classify(read), dump_classify(parsed));
  EXPECT_EQ(read.options.evaluation.eval_steps, 0.25);
  EXPECT_EQ(read.options.output.metric_name, (Words{"f1", "accuracy"}));
  EXPECT_EQ(read.origins, parsed.origins);
  EXPECT_THROW(load_classify("{}", "options.json"), Error);
}

TEST(ClassifyCommand, HelpTeachesARecipeFirst) {
  const std::string help = classify({"--nonsense", "-h"}).help.value_or("");
  EXPECT_TRUE(help.starts_with("lockstep classify: ")) << help;
  const size_t recipe = help.find("--task mrpc --dataset_name");
  ASSERT_NE(recipe, std::string::npos) << help;
  EXPECT_LT(recipe, help.find("[5e-05]"));
  EXPECT_NE(help.find("Known from transformers, accepted without effect"), std::string::npos);
  EXPECT_EQ(help.find("lora"), std::string::npos);
}

TEST(ClassifyCommand, DryRunShowsWhatWasGivenFirst) {
  const ParsedClassify parsed = classify({"--task", "mrpc", "--dry_run"});
  EXPECT_TRUE(parsed.dry_run);
  const std::string text = resolved_classify_text(parsed, {});
  EXPECT_LT(text.find("mrpc"), text.find("learning_rate"));
}

}  // namespace
}  // namespace lockstep::recipes
