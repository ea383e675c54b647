// What a run leaves: a model folder as transformers writes it, and the files beside it.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::cli {
namespace {

void expect_trained(const Scratch& scratch, const std::vector<std::string>& flags) {
  const Ended ended = run(scratch, sft_args(scratch, flags));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("Trained 2 updates"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find((scratch / "out").string()), std::string::npos) << ended.out;
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(OutputFolder, IsAModelFolderWithTheSourcesNamesAndTokenizer) {
  for (const char* model : {"llama", "qwen3"}) {
    SCOPED_TRACE(model);
    const Scratch scratch;
    const fs::path source = kTinyModels / model, out = scratch / "out";
    expect_trained(scratch, {"--model_name_or_path", source.string()});
    EXPECT_EQ(tensor_names(out / "model.safetensors"), tensor_names(source / "model.safetensors"));
    EXPECT_EQ(read_raw(out / "model.safetensors").header["__metadata__"]["format"], "pt");
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "generation_config.json"}) {
      EXPECT_EQ(read_file(out / name), read_file(source / name)) << name;
    }
    Json expected = read_json(source / "config.json");
    expected["torch_dtype"] = "float32";
    EXPECT_EQ(read_json(out / "config.json"), expected);
  }
}

TEST(OutputFolder, CanBeTrainedFurther) {
  const Scratch scratch;
  expect_trained(scratch, {});
  const Ended ended = run(scratch, sft_args(scratch, {"--model_name_or_path", (scratch / "out").string(),
                                                      "--output_dir", (scratch / "again").string()}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(scratch / "again/model.safetensors"));
}

TEST(OutputFolder, HasTheDtypeThatWasAskedFor) {
  struct Row {
    const char *model, *config, *dtype, *key, *said, *stored;
  };
  const Row rows[] = {{"llama", "config.json", "bfloat16", "torch_dtype", "bfloat16", "BF16"},
                      {"llama", "config.v5.json", "float16", "dtype", "float16", "F16"},
                      {"llama", "config.json", "auto", "torch_dtype", "float32", "F32"},
                      {"qwen3", "config.v5.json", "auto", "dtype", "bfloat16", "BF16"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(fmt::format("{} {} --dtype {}", row.model, row.config, row.dtype));
    const Scratch scratch;
    fs::copy(kTinyModels / row.model, scratch / "model");
    fs::copy_file(kTinyModels / row.model / row.config, scratch / "model/config.json",
                  fs::copy_options::overwrite_existing);
    expect_trained(scratch, {"--model_name_or_path", (scratch / "model").string(), "--dtype", row.dtype});
    EXPECT_EQ(dtype_of(scratch / "out/model.safetensors"), row.stored);
    const Json config = read_json(scratch / "out/config.json");
    EXPECT_EQ(config.at(row.key), row.said);
    EXPECT_NE(config.contains("dtype"), config.contains("torch_dtype")) << "one key for the dtype, not two";
  }
}

TEST(OutputFolder, AShardedModelComesOutAsOneFile) {
  const Scratch sharded, whole;
  expect_trained(sharded, {"--model_name_or_path", (kTinyModels / "llama-sharded").string()});
  expect_trained(whole, {});
  EXPECT_FALSE(fs::exists(sharded / "out/model.safetensors.index.json"));
  EXPECT_TRUE(read_file(sharded / "out/model.safetensors") == read_file(whole / "out/model.safetensors"));
}

TEST(OutputFolder, ASecondRunReplacesTheModelAndKeepsTheRest) {
  const Scratch scratch;
  expect_trained(scratch, {});
  const std::string first = read_file(scratch / "out/model.safetensors");
  scratch.write("out/notes.txt", "mine");
  fs::create_directory(scratch / "out/plots");
  scratch.write("out/plots/loss.svg", "<svg/>");
  for (const char* stale : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                            "model.safetensors.index.json", "optimizer_state.safetensors"}) {
    scratch.write(std::string("out/") + stale, "stale");
  }
  expect_trained(scratch, {"--learning_rate", "1e-3"});
  EXPECT_FALSE(first == read_file(scratch / "out/model.safetensors"));
  EXPECT_EQ(read_file(scratch / "out/notes.txt"), "mine");
  EXPECT_EQ(read_file(scratch / "out/plots/loss.svg"), "<svg/>");
  EXPECT_EQ(lines_of(scratch / "out/metrics.jsonl").size(), 2u) << "metrics start anew";
  EXPECT_EQ(lines_of(scratch / "out/metrics.previous.jsonl").size(), 2u) << "the earlier ones are kept";
  for (const fs::directory_entry& entry : fs::directory_iterator(scratch / "out")) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.find("safetensors") != std::string::npos;
    EXPECT_TRUE(!weights || name == "model.safetensors") << name;
  }
}

/// What a model folder needs, from a first and a second run into the folder one stands in.
TEST(OutputFolder, MayBeTheCurrentFolderByAnyName) {
  for (const char* name : {".", "./", "inside/..", "../here"}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    const fs::path here = scratch / "here";
    fs::create_directories(here / "inside");
    const std::vector<std::string> args = sft_args(scratch, {"--output_dir", name, "--overwrite_output_dir"});
    for (int round = 0; round < 2; ++round) {
      const Ended ended = run(scratch, args, here);
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_NE(ended.err.find("is the current folder"), std::string::npos) << ended.err;
      EXPECT_TRUE(fs::exists(here / "inside")) << "the folder was replaced";
      EXPECT_TRUE(fs::exists(here / "model.safetensors"));
      EXPECT_TRUE(fs::exists(here / "train_results.json"));
      EXPECT_EQ(scratch.leftovers(), "");
    }
    EXPECT_TRUE(fs::exists(here / "metrics.previous.jsonl"));
  }
}

TEST(OutputFolder, GivesTheSameModelFileByFile) {
  const Scratch scratch;
  expect_trained(scratch, {});
  fs::create_directory(scratch / "here");
  ASSERT_EQ(run(scratch, sft_args(scratch, {"--output_dir", "."}), scratch / "here").exit_code, 0);
  EXPECT_TRUE(read_file(scratch / "here/model.safetensors") == read_file(scratch / "out/model.safetensors"));
}

TEST(OutputFolder, ATildeIsTheHomeFolder) {
  const Scratch scratch;
  const char* const home = std::getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", scratch.path().c_str(), 1);
  const Ended ended = run(scratch, sft_args(scratch, {"--output_dir=~/deep/out"}));
  if (home == nullptr) unsetenv("HOME"); else setenv("HOME", before.c_str(), 1);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(scratch / "deep/out/model.safetensors"));
}

TEST(OutputFolder, ALinkStaysALink) {
  const Scratch scratch;
  fs::create_directory(scratch / "disk");
  fs::create_directory_symlink(scratch / "disk", scratch / "out");
  expect_trained(scratch, {});
  EXPECT_TRUE(fs::is_symlink(scratch / "out"));
  EXPECT_TRUE(fs::exists(scratch / "disk/model.safetensors"));
}

TEST(Metrics, HaveALinePerUpdateInTheWordsOfTrl) {
  const Scratch scratch;
  expect_trained(scratch, {"--nproc_per_node", "2"});
  const std::vector<std::string> lines = lines_of(scratch / "out/metrics.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json line = Json::parse(lines[i]);
    EXPECT_EQ(line.at("step"), i + 1);
    for (const char* key : {"loss", "grad_norm", "learning_rate", "entropy", "mean_token_accuracy", "num_tokens",
                            "epoch", "tokens_per_second", "step_ms"}) {
      EXPECT_TRUE(line.contains(key) && line[key].is_number()) << key << " in " << lines[i];
    }
    EXPECT_EQ(line.at("block_hashes").size(), 4u) << "embedding, two layers, head";
  }
  const Json results = read_json(scratch / "out/train_results.json");
  EXPECT_EQ(results.at("num_tokens"), Json::parse(lines[1]).at("num_tokens"));
  const Json run = read_json(scratch / "out/run.json");
  EXPECT_EQ(run.at("run").at("global_batch_size"), 16);
}

TEST(DryRun, TrainsNothingAndLeavesNothing) {
  const Scratch scratch;
  const Ended ended = run(scratch, sft_args(scratch, {"--dry_run", "--nproc_per_node", "3"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("Dry run: nothing was trained."), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("max_length"), std::string::npos) << "the resolved options";
  EXPECT_NE(ended.err.find("8 per process x 3 processes"), std::string::npos)
      << "it must speak of the run that was asked for:\n" << ended.err;
  EXPECT_FALSE(fs::exists(scratch / "out"));
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(Help, NamesTheMainFlags) {
  const Scratch scratch;
  const Ended ended = run(scratch, {"sft", "--help"});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* flag : {"--model_name_or_path", "--dataset_name", "--output_dir", "--learning_rate",
                           "--num_train_epochs", "--per_device_train_batch_size", "--gradient_accumulation_steps",
                           "--nproc_per_node", "--max_length", "--config", "--dry_run"}) {
    EXPECT_NE(ended.out.find(flag), std::string::npos) << flag;
  }
  EXPECT_EQ(run(scratch, {"--help"}).exit_code, 0);
  EXPECT_EQ(run(scratch, {"--version"}).out.substr(0, 9), "lockstep ");
}

TEST(Config, GivesTheOptionsThatTheCommandLineDoesNot) {
  const Scratch scratch;
  const std::string yaml = "model_name_or_path: " + (kTinyModels / "llama").string() +
                           "\ndataset_name: " + kChats.string() + "\noutput_dir: " + (scratch / "out").string() +
                           "\nmax_length: 64\nmax_steps: 2\nlearning_rate: 3.0e-4\nlr_scheduler_type: constant\n";
  const Ended ended = run(scratch, {"sft", "--config", scratch.write("run.yaml", yaml).string(), "--max_steps", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<std::string> lines = lines_of(scratch / "out/metrics.jsonl");
  ASSERT_EQ(lines.size(), 1u) << "the command line wins";
  EXPECT_EQ(Json::parse(lines[0]).at("learning_rate"), 3e-4);
}

TEST(Config, SetsTheEnvironmentBeforeAnythingLooksAtIt) {
  const Scratch scratch;
  const fs::path absent = scratch / "absent";
  const fs::path file = scratch.write("run.yaml", "env:\n  TMPDIR: " + absent.string() + "\n");
  const Ended ended = run(scratch, sft_args(scratch, {"--config", file.string()}));
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  EXPECT_NE(ended.err.find(absent.string()), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace lockstep::cli
