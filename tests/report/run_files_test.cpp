#include "lockstep/report/run_files.h"

#include "lockstep/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::report {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Run metrics_of(std::string_view text) {
  report::Run run;
  read_metrics(text, run);
  return run;
}

using At = std::pair<double, double>;

std::vector<At> pairs(const Points& points) {
  std::vector<At> result;
  for (const Point& point : points) result.emplace_back(point.step, point.value);
  return result;
}

TEST(ReadRun, ReadsWhatASftRunLeft) {
  const report::Run run = read_run(LOCKSTEP_TEST_DATA "/report/sft");
  EXPECT_THAT(run.problems, IsEmpty());
  EXPECT_EQ(run.num_updates, 6);
  EXPECT_EQ(run.last_update, 6);
  ASSERT_EQ(run.training.at("loss").size(), 6U);
  EXPECT_EQ(run.training.at("loss")[0].value, 6.786551629740094);
  EXPECT_EQ(run.training.at("learning_rate")[1].value, 1.6666666666666667e-05);
  EXPECT_EQ(run.facts.at("global_batch_size"), 24);
  EXPECT_EQ(run.options.at("max_length").value, "64");
  EXPECT_EQ(run.options.at("max_length").origin, "command line");
  EXPECT_EQ(run.options.at("attn_implementation").value, "none");
  EXPECT_EQ(run.option_names.front(), "model_name_or_path");
  EXPECT_EQ(run.results.at("train_loss"), 6.720021282317776);
  EXPECT_EQ(run.start_report.size(), 4U);
  EXPECT_EQ(read_run(LOCKSTEP_TEST_DATA "/report/sft/metrics.jsonl").training.at("loss").size(), 6U);
}

TEST(ReadMetrics, TellsEvaluationsFromUpdates) {
  const report::Run run = metrics_of(
      "{\"step\":1,\"loss\":2,\"epoch\":0.5}\n{\"step\":2,\"loss\":1.5,\"epoch\":1}\n"
      "{\"step\":2,\"epoch\":1,\"eval_loss\":1.25,\"eval_accuracy\":0.5,\"eval_runtime\":3,\"eval_samples_per_second\":9}\n");
  EXPECT_THAT(run.problems, IsEmpty());
  EXPECT_THAT(pairs(run.training.at("loss")), ElementsAre(At(1, 2), At(2, 1.5)));
  EXPECT_THAT(pairs(run.evaluations.at("eval_loss")), ElementsAre(At(2, 1.25)));
  EXPECT_EQ(run.evaluations.size(), 2U);
  EXPECT_EQ(run.num_updates, 2);
}

TEST(ReadMetrics, CountsWhatDoesNotFit) {
  const report::Run run = metrics_of(
      "{\"step\":1,\"loss\":2}\n\nnot json\n[1]\n{\"loss\":1}\n{\"step\":\"2\",\"loss\":1}\n{\"step\":-1}\n"
      "{\"step\":5,\"loss\":null,\"grad_norm\":1}\n{\"step\":6,\"loss\":3,\"grad_norm\":null,\"skipped\":true}\n{\"step\":7,\"lo");
  EXPECT_THAT(pairs(run.training.at("loss")), ElementsAre(At(1, 2), At(6, 3)));
  EXPECT_THAT(run.problems,
              ElementsAre(HasSubstr("5 lines of metrics.jsonl"), AllOf(HasSubstr("last line"), HasSubstr("cut")),
                          HasSubstr("3 updates are missing from metrics.jsonl between 1 and 6"),
                          HasSubstr("1 update was left out"), HasSubstr("1 update has a loss or gradient norm")));
}

TEST(ReadMetrics, ALastLineWithoutNewlineCountsIfItIsWhole) {
  const report::Run run = metrics_of("{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}");
  EXPECT_EQ(run.num_updates, 2);
  EXPECT_THAT(run.problems, IsEmpty());
}

TEST(ReadMetrics, OfAResumedRunTheLastCounts) {
  const report::Run run = metrics_of(
      "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2,\"grad_norm\":9}\n{\"step\":3,\"loss\":1}\n"
      "{\"step\":2,\"loss\":2.5}\n{\"step\":3,\"loss\":1.5}\n");
  EXPECT_THAT(pairs(run.training.at("loss")), ElementsAre(At(1, 3), At(2, 2.5), At(3, 1.5)));
  EXPECT_THAT(run.training.at("grad_norm"), IsEmpty());
  EXPECT_EQ(run.num_updates, 3);
  EXPECT_THAT(run.problems, ElementsAre(HasSubstr("2 updates are logged more than once")));
}

TEST(ReadMetrics, NothingYet) {
  const report::Run run = metrics_of("");
  EXPECT_EQ(run.num_updates, 0);
  EXPECT_THAT(run.problems, IsEmpty());
}

TEST(ReadOthers, WhatIsBrokenIsToldAndLeftOut) {
  report::Run run;
  read_run_json("{\"options\": 3, \"run\": [], \"report\": {}}", run);
  EXPECT_THAT(run.problems, IsEmpty());
  read_run_json("{", run);
  read_results_json("[]", run);
  read_state_json("{\"epoch\": \"x\"}", run);
  EXPECT_THAT(run.problems, ElementsAre(HasSubstr("run.json"), HasSubstr("train_results.json"), HasSubstr("trainer_state.json")));
  read_run_json("{\"options\": {\"a\": 1, \"b\": {\"value\": [1, \"x\"]}}}", run);
  EXPECT_EQ(run.options.at("a").value, "1");
  EXPECT_EQ(run.options.at("b").value, "[1,\"x\"]");
  EXPECT_EQ(run.options.at("b").origin, "unknown");
}

TEST(ReadState, GivesEvaluationsWhereMetricsHasNone) {
  const char* state = R"({"best_metric": 0.75, "best_global_step": 4, "log_history": [
      {"step": 2, "loss": 1.0}, {"step": 2, "eval_f1": 0.5, "eval_runtime": 2.0}, {"step": 4, "eval_f1": 0.75, "eval_loss": NaN}]})";
  report::Run run;
  read_state_json(state, run);
  EXPECT_THAT(pairs(run.evaluations.at("eval_f1")), ElementsAre(At(2, 0.5), At(4, 0.75)));
  EXPECT_EQ(run.evaluations.size(), 1U);
  EXPECT_EQ(run.best_metric, 0.75);
  report::Run other = metrics_of("{\"step\":2,\"eval_f1\":0.25}\n");
  read_state_json(state, other);
  EXPECT_THAT(pairs(other.evaluations.at("eval_f1")), ElementsAre(At(2, 0.25)));
}

TEST(ReadRun, FindsTheStateOfTheNewestCheckpoint) {
  const TempFolder folder("lockstep-report");
  write_file_atomically(folder.path() / "metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  for (const char* number : {"9", "10", "10x"}) {
    const fs::path checkpoint = folder.path() / (std::string("checkpoint-") + number);
    fs::create_directory(checkpoint);
    write_file_atomically(checkpoint / "trainer_state.json",
                          fmt::format("{{\"best_metric\": {}}}", std::string(number) == "10x" ? "1" : number));
  }
  const report::Run run = read_run(folder.path());
  EXPECT_EQ(run.best_metric, 10);
  EXPECT_THAT(run.problems, ElementsAre(HasSubstr("no run.json")));
}

TEST(ReadRuns, NamesAreUnique) {
  const TempFolder folder("lockstep-report");
  for (const char* name : {"a/out", "b/out", "c"}) {
    fs::create_directories(folder.path() / name);
    write_file_atomically(folder.path() / name / "metrics.jsonl", "");
  }
  const std::string root = folder.path().string();
  const auto runs = read_runs({root + "/a/out", root + "/b/out/", root + "/c", root + "/a/out"});
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].name, root + "/a/out");
  EXPECT_EQ(runs[1].name, root + "/b/out/");
  EXPECT_EQ(runs[2].name, "c");
  EXPECT_EQ(runs[3].name, root + "/a/out (2)");
}

TEST(ReadRun, SaysThatItIsNoRun) {
  const TempFolder folder("lockstep-report");
  write_file_atomically(folder.path() / "rows.jsonl", "{\"step\":1,\"loss\":2}\n");
  const std::pair<fs::path, const char*> cases[] = {
      {folder.path(), "there is no "}, {folder.path() / "none", "there is no such folder (looked for /"},
      {folder.path() / "rows.jsonl", "is a file, and not one with a run's metrics"}};
  for (const auto& [path, part] : cases) {
    try {
      read_run(path);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr(part), HasSubstr("--output_dir")));
    }
  }
}

}  // namespace
}  // namespace lockstep::report
