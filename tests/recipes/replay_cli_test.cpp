// `lockstep replay` up to its workers: the words, and the options of the run in another layout.
#include "lockstep/recipes/replay_cli.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/recipes/sft_cli.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::recipes {
namespace {

using options::Words;

ParsedReplay replay(const Words& words) { return parse_replay(words, {.page = {}, .cores = 4}); }

std::string replay_refusal(const Words& words) {
  try {
    replay(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "nothing";
}

/// A folder with the records of a run that was started with these words.
class RunFolder {
 public:
  RunFolder() : folder_("lockstep-replay-test.") {}
  const fs::path& path() const { return folder_.path(); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path() / name).parent_path());
    write_file_atomically(path() / name, text);
  }
  void write_run(const std::string& name, const std::string& options_json) const {
    auto json = nlohmann::ordered_json::parse(options_json);
    json["run"] = {{"global_batch_size", 24}, {"data", "abc"}};
    json["processes"] = 3;
    write(name, json.dump(2));
  }
  void write_metrics() const {
    write("metrics.jsonl", "{\"step\":1,\"loss\":1,\"block_hashes\":[\"a\"]}\n{\"step\":2,\"loss\":1,\"block_hashes\":[\"a\"]}\n");
  }

 private:
  TempFolder folder_;
};

ParsedClassify classify_of_run(const std::string& learning_rate) {
  const Words words = {"--model_name_or_path", "M", "--dataset_name", "D", "--nproc_per_node", "3", "--start_timeout", "17",
                       "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2", "--learning_rate", learning_rate,
                       "--resume_from_checkpoint", "last"};
  return parse_classify(words, {.page = {}, .cores = 4});
}

TEST(ReplayCommand, TakesTheRunAnywhereAmongTheFlags) {
  for (const Words& words : {Words{"out", "--update", "7", "--nproc_per_node", "2"}, Words{"--update", "7", "out", "--nproc_per_node=2"},
                             Words{"--standalone", "--nproc-per-node", "2", "--update=7", "out"}}) {
    const ParsedReplay parsed = replay(words);
    EXPECT_EQ(parsed.run, "out");
    EXPECT_EQ(parsed.options.update, 7);
    EXPECT_EQ(parsed.options.launch.nproc_per_node, "2");
  }
  EXPECT_FALSE(replay({"out"}).options.update.has_value());
}

TEST(ReplayCommand, RefusesWhatItCannotDo) {
  EXPECT_NE(replay_refusal({}).find("No run is named"), std::string::npos);
  EXPECT_NE(replay_refusal({"--update", "7"}).find("No run is named"), std::string::npos);
  EXPECT_NE(replay_refusal({"out", "other"}).find("'other' is one word too many"), std::string::npos);
  EXPECT_NE(replay_refusal({"out", "--update", "0"}).find("update = 0"), std::string::npos);
  EXPECT_NE(replay_refusal({"out", "--checkpoint", ""}).find("--checkpoint is empty"), std::string::npos);
  EXPECT_NE(replay_refusal({"out", "--learning_rate", "1"}).find("learning_rate"), std::string::npos)
      << "the run's options are the run's";
}

TEST(ReplayCommand, HelpNamesItsFlags) {
  const ParsedReplay parsed = replay({"--help"});
  ASSERT_TRUE(parsed.help.has_value());
  for (const char* word : {"lockstep replay RUN", "--update", "--checkpoint", "--nproc_per_node", "exit code is 8"}) {
    EXPECT_NE(parsed.help->find(word), std::string::npos) << word;
  }
}

TEST(ReplayJob, IsTheRunInTheLayoutAskedFor) {
  const RunFolder folder;
  folder.write_run("run.json", dump_classify(classify_of_run("0.5")));
  folder.write_metrics();
  const ReplayJob job = prepare_replay(replay({folder.path().string(), "--nproc_per_node", "2"}), {});
  EXPECT_EQ(job.command, "classify");
  EXPECT_EQ(job.model_folder, "M");
  EXPECT_EQ(job.update, 2);
  const ParsedClassify options = load_classify(job.run_file, "job");
  EXPECT_EQ(options.options.optim.learning_rate, 0.5);
  EXPECT_EQ(options.options.launch.nproc_per_node, "2");
  EXPECT_EQ(options.options.launch.start_timeout, 60) << "launch options are the replay's alone";
  EXPECT_EQ(options.options.train.global_batch_size, 24);
  EXPECT_FALSE(options.options.checkpoints.resume_from_checkpoint.has_value());
  EXPECT_EQ(options.origins.count("start_timeout"), 0u);
  EXPECT_EQ(options.origins.at("nproc_per_node").kind, options::Origin::Kind::CommandLine);
}

TEST(ReplayJob, HasTheOptionsThatTheUpdateWasComputedWith) {
  const RunFolder folder;
  folder.write_run("run.json", dump_classify(classify_of_run("0.5")));
  folder.write_metrics();
  folder.write_run("checkpoint-1/run.json", dump_classify(classify_of_run("0.25")));
  folder.write("checkpoint-1/manifest.json", "{}");
  folder.write_run("checkpoint-10/run.json", dump_classify(classify_of_run("0.125")));
  folder.write("checkpoint-10/manifest.json", "{}");
  folder.write_run("checkpoint-9/run.json", dump_classify(classify_of_run("0.75")));  // not finished
  const auto learning_rate = [&](const std::string& update) {
    const ReplayJob job = prepare_replay(replay({folder.path().string(), "--update", update}), {});
    return load_classify(job.run_file, "job").options.optim.learning_rate;
  };
  EXPECT_EQ(learning_rate("1"), 0.25) << "taken right after the update";
  EXPECT_EQ(learning_rate("2"), 0.125);
  fs::remove_all(folder.path() / "checkpoint-10");
  EXPECT_EQ(learning_rate("2"), 0.5) << "no checkpoint from there on";
}

TEST(ReplayJob, KnowsSft) {
  const RunFolder folder;
  const Words words = {"--model_name_or_path", "L", "--dataset_name", "D.jsonl"};
  folder.write_run("run.json", dump_sft(parse_sft(words, {.page = {}, .cores = 4})));
  folder.write_metrics();
  const ReplayJob job = prepare_replay(replay({folder.path().string(), "--update", "1"}), {});
  EXPECT_EQ(job.command, "sft");
  EXPECT_EQ(load_sft(job.run_file, "job").options.train.global_batch_size, 24);
}

TEST(ReplayJob, RefusesAFolderThatIsNoRun) {
  const auto refusal = [](const fs::path& folder) {
    try {
      prepare_replay(replay({folder.string()}), {});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const RunFolder folder;
  EXPECT_NE(refusal(folder.path() / "none").find("no such folder"), std::string::npos);
  EXPECT_NE(refusal(folder.path()).find("run.json is missing"), std::string::npos);
  folder.write_metrics();
  EXPECT_NE(refusal(folder.path() / "metrics.jsonl").find("is a file, not a folder"), std::string::npos);
  const std::string record = (folder.path() / "run.json").string();
  const std::pair<const char*, const char*> cases[] = {
      {"", "is no JSON"}, {"{}", "'command'"}, {"[]", "is no JSON object"}, {R"({"command": "report"})", "'command'"},
      {R"({"command": 3})", "'command'"}, {R"({"command": "sft"})", "'run.global_batch_size'"},
      {R"({"command": "sft", "run": 3})", "'run.global_batch_size'"},
      {R"({"command": "sft", "run": {"global_batch_size": "8"}})", "'run.global_batch_size'"},
      {R"({"command": "sft", "run": {"global_batch_size": 0}})", "'run.global_batch_size'"},
      {R"({"command": "sft", "run": {"global_batch_size": 8}})", "'options'"},
      {R"({"command": "classify", "run": {"global_batch_size": 8}, "options": {}})", "'options'"},
      {R"({"command": "classify", "run": {"global_batch_size": 8}, "options": {"seed": {"value": 1, "origin": "default"}}})", "'options.model_name_or_path'"}};
  for (const auto& [text, part] : cases) {
    folder.write("run.json", text);
    EXPECT_TRUE(refusal(folder.path()).starts_with(record + ": ")) << text;
    EXPECT_NE(refusal(folder.path()).find(part), std::string::npos) << refusal(folder.path());
  }
}

TEST(ReplayRequest, TravelsInAWorkersWords) {
  const auto travelled = [](const ReplayRequest& request) {
    Words words = {"classify", "--run_file", "F", "--dry_run", "2"};
    for (const std::string& word : worker_words(request)) words.push_back(word);
    return replay_request(words).value();
  };
  const ReplayRequest plain = travelled({"out", 7, {}});
  EXPECT_EQ(plain.run, "out");
  EXPECT_EQ(plain.update, 7);
  EXPECT_FALSE(plain.checkpoint.has_value());
  EXPECT_EQ(travelled({"out", 7, "--dry_run"}).checkpoint, "--dry_run") << "a folder may have any name";
  EXPECT_FALSE(replay_request(Words{"sft", "--run_file", "F"}).has_value());
}

}  // namespace
}  // namespace lockstep::recipes
