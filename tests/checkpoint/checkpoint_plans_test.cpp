// The decisions around checkpoints that touch no disk.
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/run_identity.h"
#include "lockstep/checkpoint/weight_files.h"

#include <gtest/gtest.h>

namespace lockstep::checkpoint {
namespace {

using Updates = std::vector<int64_t>;

TEST(CheckpointRotation, RemovesTheOldestButNeverWhatIsNeeded) {
  const Updates all = {10, 20, 30, 40, 50};
  const auto removed = [&](std::optional<int64_t> limit, const Updates& keep) {
    return checkpoints_to_remove(all, limit, keep);
  };
  EXPECT_EQ(removed(std::nullopt, {}), Updates{});
  EXPECT_EQ(removed(0, {}), Updates{});
  EXPECT_EQ(removed(-1, {}), Updates{});
  EXPECT_EQ(removed(5, {}), Updates{});
  EXPECT_EQ(removed(3, {}), (Updates{10, 20}));
  EXPECT_EQ(removed(3, {10}), (Updates{20, 30})) << "the best stays";
  EXPECT_EQ(removed(1, {}), (Updates{10, 20, 30, 40})) << "the newest stays";
  EXPECT_EQ(removed(1, {20, 40}), (Updates{10, 30})) << "more than the limit when more are protected";
  EXPECT_EQ(removed(1, {99}), (Updates{10, 20, 30, 40})) << "a protected one elsewhere counts for nothing here";
  EXPECT_EQ(checkpoints_to_remove({}, 1, {}), Updates{});
  EXPECT_EQ(checkpoints_to_remove(Updates{100, 20, 3}, 2, {}), Updates{3}) << "by number, not by name or order";
}

TEST(CheckpointNames, AreNumbersAndNothingElse) {
  EXPECT_EQ(checkpoint_name(12), "checkpoint-12");
  EXPECT_EQ(partial_name(12), ".checkpoint-12.partial");
  EXPECT_EQ(update_of("checkpoint-12"), 12);
  for (const char* name : {"checkpoint-", "checkpoint-1a", "checkpoint--1", "checkpoint-+1", "checkpoint", ".checkpoint-1",
                           "checkpoint-1.partial", "checkpoint-99999999999999999999"}) {
    EXPECT_EQ(update_of(name), std::nullopt) << name;
  }
}

TEST(Manifest, IsReadAsItWasWritten) {
  const Manifest manifest{.update = 7, .world_size = 3, .weights_dtype = "bfloat16", .optimizer = false,
                          .files = {{"a.json", 12, 0xfedcba9876543210}, {"b", 0, 1}}};
  const Manifest read = parse_manifest(format_manifest(manifest), "m");
  EXPECT_EQ(read.update, 7);
  EXPECT_EQ(read.world_size, 3);
  EXPECT_EQ(read.weights_dtype, "bfloat16");
  EXPECT_FALSE(read.optimizer);
  EXPECT_EQ(read.files, manifest.files);
  EXPECT_EQ(read.find("a.json")->bytes, 12);
  EXPECT_EQ(read.find("c"), nullptr);
}

TEST(Manifest, RefusesWhatIsNotOne) {
  const std::string good = format_manifest({.update = 1, .world_size = 1, .weights_dtype = "float32", .optimizer = true,
                                            .files = {{"a", 1, 2}}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text : {std::string(), good.substr(0, good.size() / 2), std::string("[]"),
                                  with("checkpoint-1", "checkpoint-9"), with("\"a\"", "\"/etc/passwd\""),
                                  with("\"a\"", "\"../a\""), with("0000000000000002", "2"),
                                  with("0000000000000002", "000000000000000x"), with("\"bytes\": 1", "\"bytes\": \"1\""),
                                  with("\"world_size\": 1", "\"world_size\": 0")}) {
    try {
      parse_manifest(text, "out/manifest.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_TRUE(std::string(error.what()).starts_with("out/manifest.json: ")) << error.what();
    }
  }
}

TEST(Manifest, AddsUpWhatTheRanksWrote) {
  const std::vector<RankReport> reports = {{0, "", "", {{"model", 10, ~uint64_t{0}}, {"part-0", 3, 1}}},
                                           {1, "", "", {{"model", 5, 2}, {"part-1", 4, 9}}}};
  const std::vector<ManifestFile> wanted = {{"model", 15, 1}, {"part-0", 3, 1}, {"part-1", 4, 9}};
  EXPECT_EQ(merge_reports(reports), wanted);
  const RankReport read = parse_report(format_report({2, "no \xff room", "Environment", reports[0].files}));
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.error_kind, "Environment");
  EXPECT_EQ(read.files, reports[0].files);
}

TEST(WeightFiles, AreOneFileOrShardsThatFillUp) {
  const std::vector<TensorPlan> tensors = {{"b", at::kFloat, {100}}, {"a", at::kFloat, {100}}, {"c", at::kFloat, {300}}};
  const std::vector<FilePlan> one = plan_weight_files(tensors);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].file, "model.safetensors");
  EXPECT_EQ(one[0].tensors[0].name, "a");
  EXPECT_EQ(one[0].offsets[0], static_cast<int64_t>(one[0].head.size()));
  EXPECT_EQ(one[0].offsets[2], one[0].offsets[0] + 800);
  EXPECT_EQ(one[0].num_bytes, one[0].offsets[0] + 2000);
  const std::vector<FilePlan> two = plan_weight_files(tensors, 1000);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].file, "model-00002-of-00002.safetensors");
  EXPECT_EQ(two[1].tensors.size(), 1u) << "larger than a file";
}

std::vector<std::string> fields_of(const std::vector<RunDifference>& differences) {
  std::vector<std::string> names;
  for (const RunDifference& one : differences) names.push_back(one.field + " " + one.stored + " " + one.current);
  return names;
}

TEST(RunIdentity, SortsDifferencesByWhatTheyMean) {
  const std::string stored = R"({"run": {"B": 24, "seed": 1, "rate": 2.0}, "model": {"layers": 6, "act": "gelu"},
      "options": {"logging_steps": 10, "output_dir": "a"}, "empty": {}, "list": [1, 2]})";
  const std::string current = R"({"run": {"B": 32, "seed": 1, "rate": 2}, "model": {"layers": 6, "kv": 2},
      "options": {"logging_steps": 5, "output_dir": "b"}, "empty": {}, "list": [1, 3], "models": 1})";
  const std::vector<std::string> must = {"run", "model"}, ignored = {"options.output_dir"};
  const RunComparison comparison = compare_runs(stored, current, {must, ignored});
  EXPECT_EQ(fields_of(comparison.must_equal),
            (std::vector<std::string>{"model.act \"gelu\" (absent)", "model.kv (absent) 2", "run.B 24 32"}));
  EXPECT_EQ(fields_of(comparison.changed),
            (std::vector<std::string>{"list [1,2] [1,3]", "models (absent) 1", "options.logging_steps 10 5"}));
  EXPECT_EQ(describe(comparison.changed), "  list: [1,2] -> [1,3]\n  models: (absent) -> 1\n  options.logging_steps: 10 -> 5");
  try {
    require_same_run(comparison, "out/checkpoint-3");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    const std::string text = error.what();
    for (const char* part : {"out/checkpoint-3", "run.B: 24 -> 32", "model.act: \"gelu\" -> (absent)"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  require_same_run(compare_runs(stored, stored, {must, ignored}), "x");
  EXPECT_TRUE(compare_runs(stored, stored, {must, ignored}).changed.empty());
}

TEST(RunIdentity, SaysWhichSideCannotBeRead) {
  for (const char* bad : {"", "[1]", "{\"a\": "}) {
    try {
      compare_runs(bad, "{}", {});
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_NE(std::string(error.what()).find("stored"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
