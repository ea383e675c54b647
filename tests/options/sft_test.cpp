#include "lockstep/recipes/sft_cli.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::recipes {
namespace {

ParsedSft parse(std::vector<std::string> more, int64_t cores = 4) {
  std::vector<std::string> args = {"--model_name_or_path", "M", "--dataset_name", "D"};
  args.insert(args.end(), more.begin(), more.end());
  return parse_sft(args, {.page = {}, .cores = cores});
}

std::string error_of(std::vector<std::string> more, int64_t cores = 4) {
  try {
    parse(std::move(more), cores);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "nothing";
}

TEST(Sft, NeedsAModelAndData) {
  try {
    parse_sft({}, {});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_NE(text.find("missing --model_name_or_path"), std::string::npos) << text;
    EXPECT_NE(text.find("missing --dataset_name"), std::string::npos) << text;
  }
}

TEST(Sft, AFlagThatCannotBeReadIsNotMissingAsWell) {
  const auto problem = [](const options::Words& args) -> std::string {
    try {
      parse_sft(args, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto holds = [&](const options::Words& args, std::string_view begin, std::string_view missing) {
    const std::string text = problem(args);
    EXPECT_TRUE(text.starts_with(begin)) << text;
    EXPECT_EQ(text.find(missing), std::string::npos) << text;
  };
  holds({"--model", "X", "--dataset_name", "d.jsonl"}, "unknown flag --model. It is called --model_name_or_path.", "missing");
  holds({"--model_name_or_pth", "X", "--dataset_name", "d.jsonl"}, "unknown flag --model_name_or_pth. Did you mean", "missing");
  holds({"--model_name_or_path", "X", "--dataset_name"}, "--dataset_name needs a value", "missing");
  holds({"--model", "X"}, "2 problems:\n  - unknown flag --model. ", "missing --model");
}

TEST(Sft, FillsTheStructsOfAllOwners) {
  const ParsedSft parsed = parse({"--dtype", "auto", "--max_length", "64", "--lr_scheduler_type", "cosine", "--bf16",
                                  "false", "--nproc_per_node", "2", "--warmup_steps", "0.1", "--dry_run"});
  EXPECT_EQ(parsed.options.model.dtype, "auto");
  EXPECT_EQ(parsed.options.data.max_length, 64);
  EXPECT_EQ(parsed.options.optim.lr_scheduler_type, "cosine");
  EXPECT_EQ(parsed.options.optim.warmup_steps, 0.1);
  EXPECT_FALSE(train::computes_in_bf16(parsed.options.train));
  EXPECT_EQ(launch::num_workers(parsed.options.launch, 4), 2);
  EXPECT_TRUE(parsed.dry_run);
  EXPECT_TRUE(parsed.notes.empty());
}

TEST(Sft, UnsetOptionsMeanWhatTrlMeans) {
  const SftOptions sft = parse({}).options;
  EXPECT_TRUE(train::computes_in_bf16(sft.train));
  EXPECT_EQ(train::recompute(sft.train), std::nullopt);
  EXPECT_EQ(train::recompute(parse({"--gradient_checkpointing"}).options.train), true);
  EXPECT_EQ(train::recompute(parse({"--activation_checkpointing", "no"}).options.train), false);
  EXPECT_EQ(launch::num_workers(parse({"--nproc_per_node", "auto"}).options.launch, 4), 4);
}

TEST(Sft, TheGlobalBatchMustBeTheProductOfItsFactors) {
  EXPECT_EQ(train::samples_per_update(parse({"--nproc_per_node", "2"}).options.train, 2), 16);
  EXPECT_EQ(train::samples_per_update(parse({"--global_batch_size", "24"}).options.train, 2), 24);
  const std::vector<std::string> factors = {"--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "3",
                                            "--nproc_per_node", "2", "--global_batch_size"};
  auto with = [&](const std::string& global) {
    std::vector<std::string> args = factors;
    args.push_back(global);
    return args;
  };
  EXPECT_EQ(parse(with("24")).options.train.global_batch_size, 24);
  EXPECT_EQ(error_of(with("32")),
            "global_batch_size = 32 (command line): per_device_train_batch_size x nproc_per_node x "
            "gradient_accumulation_steps = 4 x 2 x 3 = 24. Leave out --global_batch_size, or one of the factors.");
}

TEST(Sft, TheGlobalBatchMustBeAMultipleOfTheGivenFactor) {
  EXPECT_EQ(parse({"--global_batch_size", "24", "--per_device_train_batch_size", "4", "--nproc_per_node", "auto"}, 3)
                .options.train.global_batch_size,
            24);
  EXPECT_EQ(error_of({"--global_batch_size", "30", "--per_device_train_batch_size", "4", "--nproc_per_node", "2"}),
            "global_batch_size = 30 (command line): not a multiple of per_device_train_batch_size x nproc_per_node = "
            "4 x 2 = 8. Leave one of the two out.");
}

TEST(Sft, TheBatchCountsTheProcessesOfAllMachines) {
  const std::vector<std::string> factors = {"--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "3",
                                            "--nnodes", "2", "--global_batch_size", "24"};
  EXPECT_EQ(parse(factors).options.train.global_batch_size, 24);
}

TEST(Sft, AcceleratesWordsMustAgreeWithTorchruns) {
  EXPECT_EQ(error_of({"--nnodes", "2", "--num_machines", "3"}),
            "nnodes = 2 (command line) and num_machines = 3 (command line) contradict each other. Leave one out.");
  EXPECT_EQ(error_of({"--node_rank", "1", "--machine_rank", "0"}),
            "node_rank = 1 (command line) and machine_rank = 0 (command line) contradict each other. Leave one out.");
  EXPECT_EQ(error_of({"--num_processes", "5", "--num_machines", "2"}),
            "num_processes = 5 (command line): not a multiple of the 2 machines. Use --nproc_per_node on each.");
  const ParsedSft parsed = parse({"--num_processes", "6", "--num_machines", "2", "--nproc_per_node", "3"});
  EXPECT_EQ(launch::num_workers(parsed.options.launch, 64), 3);
  EXPECT_EQ(launch::num_nodes(parsed.options.launch), 2);
}

TEST(Sft, LengthOfTrainingIsSaidOnce) {
  EXPECT_EQ(error_of({"--max_steps", "0"}),
            "max_steps = 0 (command line): must be -1 (as num_train_epochs says) or at least 1.");
  EXPECT_EQ(parse({"--max_steps", "5", "--num_train_epochs", "2"}).notes,
            options::Words{"num_train_epochs = 2 (command line) has no effect: max_steps = 5 (command line) says how "
                           "long training lasts."});
}

TEST(Sft, BothNamesOfCheckpointingMustAgree) {
  EXPECT_EQ(error_of({"--gradient_checkpointing", "--activation_checkpointing", "no"}),
            "activation_checkpointing = false (command line) and gradient_checkpointing = true (command line) are two "
            "names of one option. Leave one out.");
}

TEST(Sft, WhatEvaluationNeedsIsChecked) {
  EXPECT_TRUE(parse({"--save_steps", "200", "--eval_strategy", "epoch", "--logging_dir", "logs"}).notes.empty());
  EXPECT_NE(error_of({"--eval_on_start"}).find("Add --eval_strategy epoch, or steps."), std::string::npos);
  EXPECT_NE(error_of({"--load_best_model_at_end"}).find("needs evaluations during training"), std::string::npos);
  EXPECT_NE(error_of({"--early_stopping_patience", "2"}).find("counts evaluations"), std::string::npos);
  EXPECT_NE(error_of({"--eval_strategy", "epoch", "--metric_for_best_model", "steps_per_second"}).find("depends on the clock"), std::string::npos);
  EXPECT_NE(error_of({"--eval_strategy", "epoch", "--metric_for_best_model", "f1"}).find("Use one of loss, entropy"), std::string::npos);
  EXPECT_NE(error_of({"--eval_strategy", "epoch", "--metric_for_best_model", "entropy", "--prediction_loss_only"}).find("Use loss, or leave"),
            std::string::npos);
  EXPECT_EQ(error_of({"--eval_strategy", "epoch", "--metric_for_best_model", "mean_token_accuracy"}), "nothing");
  EXPECT_EQ(parse({"--eval_steps", "10"}).notes.size(), 1U) << "it has no effect";
}

struct Refusal {
  std::vector<std::string> args;
  std::string part;  ///< of the message: the value and the remedy
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.args.front(); }
class SftRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(SftRefuses, ByNameWithTheReason) {
  const std::string text = error_of(GetParam().args);
  EXPECT_NE(text.find(GetParam().part), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, SftRefuses,
    testing::Values(
        Refusal{{"--dataset_streaming"}, "dataset_streaming = true (command line): the length of the data is not known"},
        Refusal{{"--packing_strategy", "best"}, "packing_strategy = best (command line): must be one of bfd, bfd_split, wrapped"},
        Refusal{{"--use_peft"}, "use_peft = true (command line): LoRA is not there yet"},
        Refusal{{"--fp16"}, "Use --bf16 true or --bf16 false"},
        Refusal{{"--eval_strategy", "often"}, "must be one of no, steps, epoch"},
        Refusal{{"--lr_scheduler_type", "triangular"}, "lr_scheduler_type = triangular (command line): must be one of"},
        Refusal{{"--optim", "adamw_8bit"}, "optim = adamw_8bit (command line): is not there yet"},
        Refusal{{"--deepspeed", "ds.json"}, "sharded over the processes by themselves"},
        Refusal{{"--fsdp", "full_shard auto_wrap"}, "sharded over the processes by themselves"},
        Refusal{{"--resume_from_checkpoint="}, "resume_from_checkpoint = '' (command line): is empty"},
        Refusal{{"--ignore_data_skip"}, "a resumed run goes on where it stopped"},
        Refusal{{"--nproc_per_node", "gpu"}, "needs GPU support"},
        Refusal{{"--nproc_per_node", "0"}, "must be a number"},
        Refusal{{"--max_length", "0"}, "max_length = 0 (command line): must be at least 1"},
        Refusal{{"--per_device_train_batch_size", "-1"}, "must be at least 1 and at most 1048576"},
        Refusal{{"--report_to", "wandb"}, "report_to = wandb (command line): lockstep sends nothing anywhere"},
        Refusal{{"--seed", "-1"}, "seed = -1 (command line): must be at least 0"},
        Refusal{{"--warmup_ratio", "0.1"}, "unknown flag --warmup_ratio. It is part of --warmup_steps now"},
        Refusal{{"--grain_order", "random"}, "must be ascending, descending or shuffled:SEED"}));

TEST(Sft, WhatOneMachineNeedsNotBeToldIsAccepted) {
  const ParsedSft parsed = parse({"--num_processes", "1", "--nnodes", "1:1", "--num_machines", "1", "--node_rank", "0",
                                  "--rdzv_backend", "c10d", "--ddp_backend", "gloo", "--mixed_precision", "bf16",
                                  "--max_restarts", "0", "--fsdp="});
  EXPECT_TRUE(parsed.notes.empty());
}

TEST(Sft, TheFileForTheWorkersComesBackWhole) {
  const ParsedSft parsed = parse({"--learning_rate", "0.1", "--grain_order", "shuffled:7", "--exact_scale", "40"});
  const ParsedSft read = load_sft(dump_sft(parsed), "options.json");
  EXPECT_EQ(dump_sft(read), dump_sft(parsed));
  EXPECT_EQ(read.options.optim.learning_rate, 0.1);
  EXPECT_EQ(read.options.train.grain_order, "shuffled:7");
  EXPECT_EQ(read.origins, parsed.origins);
}

TEST(Sft, HelpIsGivenEvenIfTheRestIsWrong) {
  const std::vector<std::string> args = {"--nonsense", "-h"};
  const std::string help = parse_sft(args, {}).help.value_or("");
  EXPECT_TRUE(help.starts_with("lockstep sft: ")) << help;
  EXPECT_NE(help.find("--learning_rate"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::recipes
