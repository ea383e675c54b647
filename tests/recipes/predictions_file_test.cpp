// Where predictions may be written.
#include "lockstep/recipes/predictions_file.h"

#include "lockstep/base/files.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

namespace lockstep::recipes {
namespace {

class PredictionsFile : public testing::Test {
 protected:
  PredictionsFile() {
    fs::create_directories(folder_.path() / "model");
    fs::create_directories(folder_.path() / "out/checkpoint-2");
    options_.model.model_name_or_path = in("model");
    options_.data.test_file = in("rows.jsonl");
    options_.train.output_dir = in("out");
    write("rows.jsonl", R"({"row": 0, "scores": [1], "text": "a"})");
  }
  std::string in(const std::string& name) const { return (folder_.path() / name).string(); }
  void write(const std::string& name, const std::string& text) const { write_file_atomically(folder_.path() / name, text); }

  /// Empty: none.
  std::string problem(const std::string& path) {
    options_.output.predictions = path;
    return predictions_problem(options_).value_or("");
  }
  void expect_problem(const std::string& path, const std::string& part) {
    EXPECT_NE(problem(path).find(part), std::string::npos) << path << ": " << problem(path);
  }

  TempFolder folder_{"predictions"};
  ClassifyOptions options_;
};

TEST_F(PredictionsFile, MayBeNewOrReplacePredictions) {
  write("old.jsonl", "{\"row\":0,\"label\":\"yes\",\"scores\":[0.4,0.6]}\n");
  write("empty", "");
  for (const char* name : {"new.txt", "old.jsonl", "empty", "out/predictions.jsonl", "out/mine.jsonl"}) {
    EXPECT_EQ(problem(in(name)), "") << name;
  }
  options_.output.predictions.reset();
  EXPECT_FALSE(predictions_problem(options_));
  write("out/predictions.jsonl", "{\"row\":0,\"label\":\"yes\",\"scores\":[0.4,0.6]}\n");
  EXPECT_FALSE(predictions_problem(options_));
  options_.train.output_dir = in("not-there-yet");
  EXPECT_FALSE(predictions_problem(options_));
}

TEST_F(PredictionsFile, ReplacesNothingElseWhereNobodyNamedIt) {
  write("out/predictions.jsonl", "my notes\n");
  options_.output.predictions.reset();
  EXPECT_EQ(predictions_path(options_), in("out/predictions.jsonl"));
  EXPECT_NE(predictions_problem(options_).value_or("").find("is there already and holds no predictions"), std::string::npos);
}

TEST_F(PredictionsFile, ReplacesNothingElse) {
  write("notes.txt", "mine\n");
  write("other.jsonl", "{\"text\": \"a\"}\n");
  for (const char* name : {"notes.txt", "other.jsonl"}) expect_problem(in(name), "is there already and holds no predictions");
  expect_problem(in("model"), "lies in the model's folder");
  expect_problem(in("model/model.safetensors"), "lies in the model's folder");
  expect_problem(in("rows.jsonl"), "is read by the run");
  fs::create_symlink(in("rows.jsonl"), in("link.jsonl"));
  expect_problem(in("link.jsonl"), "is read by the run");
  expect_problem(in("out/../rows.jsonl"), "is read by the run");
  expect_problem(in("nowhere/p.jsonl"), "there is no folder " + in("nowhere"));
}

TEST_F(PredictionsFile, IsNoneOfTheRunsOwnFiles) {
  for (const char* name : {"out/model.safetensors", "out/metrics.jsonl", "out/run.json", "out/checkpoint-2/p.jsonl", "out"}) {
    expect_problem(in(name), "is a place where the run writes its own files");
  }
}

TEST_F(PredictionsFile, IsNoDevice) {
  for (const char* path : {"/dev/full", "/dev/null", "/dev/stdout", "/tmp/../dev/stdout"}) {
    expect_problem(path, "is a device or a pipe");
  }
  ASSERT_EQ(mkfifo(in("pipe").c_str(), 0600), 0);
  expect_problem(in("pipe"), "is a device or a pipe");
}

}  // namespace
}  // namespace lockstep::recipes
