// --profile: a trace and a table of some updates, which nobody can tell from the result.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

/// 96 rows in updates of 12: 8 updates.
Words profile_args(const Scratch& scratch, const std::string& command, const std::string& output, const Words& more) {
  Words args = {"sft", "--model_name_or_path", (kTinyModels / "llama").string(), "--dataset_name", kChats.string(),
                "--max_length", "64"};
  if (command == "classify") {
    args = {"classify", "--model_name_or_path", (kTinyModels / "bert").string(), "--dataset_name",
            (kTestData / "solution-pairs").string(), "--text_column", "question", "--text_pair_column", "solution",
            "--max_length", "48", "--ignore_mismatched_sizes", "--max_eval_samples", "5", "--bf16"};
  }
  const Words common = {"--max_steps", "6", "--global_batch_size", "12", "--learning_rate", "1e-3", "--disable_tqdm",
                        "--save_strategy", "no", "--nproc_per_node", "1", "--threads_per_process", "1",
                        "--output_dir", (scratch / output).string()};
  args.insert(args.end(), common.begin(), common.end());
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

/// Standard error of a run that ends well.
std::string profiled(const Scratch& scratch, const std::string& command, const std::string& output, const Words& more) {
  const Ended ended = run(scratch, profile_args(scratch, command, output, more));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended.err;
}

struct TraceEvent {
  int64_t begin_ns, end_ns;
  std::string name, category;
};
/// Complete events by rank and thread, outer ones first.
using Tracks = std::map<std::pair<int, int>, std::vector<TraceEvent>>;

int64_t nanoseconds(const Json& micros) { return std::llround(1e3 * micros.get<double>()); }

Tracks tracks_of(const fs::path& output) {
  Tracks tracks;
  const Json trace = read_json(output / "profile" / "trace.json");
  for (const Json& event : trace["traceEvents"]) {
    const std::pair track{event["pid"].get<int>(), event["tid"].get<int>()};
    if (event["ph"] == "M") continue;
    EXPECT_EQ(event["ph"], "X") << event;
    const int64_t begin = nanoseconds(event["ts"]);
    tracks[track].push_back({begin, begin + nanoseconds(event["dur"]), event["name"], event["cat"]});
  }
  for (auto& [track, events] : tracks) {
    std::reverse(events.begin(), events.end());  // the file has them by their ends
    std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return std::tuple(a.begin_ns, -a.end_ns) < std::tuple(b.begin_ns, -b.end_ns);
    });
  }
  return tracks;
}

/// Each event ends within the one it began in.
void expect_nested(const std::vector<TraceEvent>& events) {
  std::vector<const TraceEvent*> open;
  for (const TraceEvent& event : events) {
    ASSERT_LE(event.begin_ns, event.end_ns) << event.name;
    while (!open.empty() && open.back()->end_ns <= event.begin_ns) open.pop_back();
    if (!open.empty()) {
      ASSERT_LE(event.end_ns, open.back()->end_ns) << event.name << " in " << open.back()->name;
    }
    open.push_back(&event);
  }
}

std::set<std::string> names_in(const Tracks& tracks) {
  std::set<std::string> names;
  for (const auto& [track, events] : tracks) {
    for (const TraceEvent& event : events) names.insert(event.name);
  }
  return names;
}

Words updates_in(const Tracks& tracks) {
  Words names;
  for (const TraceEvent& event : tracks.at({0, 0})) {
    if (event.name.starts_with("update ")) names.push_back(event.name);
  }
  return names;
}

/// ms of the line that begins so.
double ms_in_table(const std::string& table, const std::string& row) {
  const size_t at = table.find("  " + row + "  ");
  EXPECT_NE(at, std::string::npos) << row << " in\n" << table;
  return at == std::string::npos ? 0 : std::stod(table.substr(at + 2 + row.size()));
}

/// `copies`: what processes send each other is copied on every machine, never read where it lies.
void expect_profile(const fs::path& output, int processes, int threads, bool copies, const std::string& err) {
  const Tracks tracks = tracks_of(output);
  EXPECT_EQ(std::ssize(tracks), processes * threads);
  for (const auto& [track, events] : tracks) expect_nested(events);
  EXPECT_EQ(updates_in(tracks), (Words{"update 3", "update 4"}));
  const std::set<std::string> names = names_in(tracks);
  for (const char* name : {"grain 0", "layer 0, forward", "layer 1, backward", "embedding, forward", "embedding, backward",
                           "attention, forward", "attention, backward", "product, forward", "product, input gradient",
                           "product, weight gradient + exact add", "norm", "activation", "elementwise", "head and loss", "exact add",
                           "plan", "optimizer: norm pass", "optimizer: step pass"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(names.contains("waiting for other ranks"), processes > 1);
  for (const char* name : {"reduce-scatter", "all-gather"}) {
    // Whether the others copy depends on the kernel (comm::Communicator::share_bytes).
    EXPECT_TRUE(names.contains(name) == copies || (processes > 1 && !copies)) << name;
  }
  const std::string table = read_file(output / "profile" / "table.txt");
  EXPECT_NE(err.find(table), std::string::npos) << err;
  EXPECT_NE(table.find("largest: "), std::string::npos);
  // The rows add up to the update, which is no longer than the trace's.
  double update_ms = 0;
  for (const auto& [track, events] : tracks) {
    for (const TraceEvent& event : events) {
      if (event.name.starts_with("update ")) update_ms += 1e-6 * static_cast<double>(event.end_ns - event.begin_ns) / 2 / processes;
    }
  }
  EXPECT_NEAR(ms_in_table(table, "all"), update_ms, 0.01 + 0.001 * update_ms);
}

class ProfileOf : public testing::TestWithParam<std::string> {};

TEST_P(ProfileOf, ShowsEveryKindAndChangesNothing) {
  const Scratch scratch;
  profiled(scratch, GetParam(), "plain", {});
  const std::string want = read_file(scratch / "plain" / "model.safetensors");
  for (const auto& [processes, threads] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
    const std::string name = "out" + std::to_string(processes) + std::to_string(threads);
    const bool copies = processes > 1 && threads == 1;
    setenv("LOCKSTEP_COMM", copies ? "shm-rings" : "auto", 1);
    const std::string err = profiled(scratch, GetParam(), name,
                                     {"--profile", "2", "--nproc_per_node", std::to_string(processes), "--threads_per_process",
                                      std::to_string(threads)});
    unsetenv("LOCKSTEP_COMM");
    EXPECT_TRUE(read_file(scratch / name / "model.safetensors") == want) << name;
    expect_profile(scratch / name, processes, threads, copies, err);
  }
  EXPECT_FALSE(fs::exists(scratch / "plain" / "profile"));
  EXPECT_EQ(scratch.leftovers(), "");
}

INSTANTIATE_TEST_SUITE_P(Commands, ProfileOf, testing::Values("sft", "classify"), [](const auto& command) { return command.param; });

TEST(ProfileRun, MoreUpdatesThanThereAre) {
  const Scratch scratch;
  profiled(scratch, "sft", "out", {"--profile", "1000"});
  EXPECT_EQ(updates_in(tracks_of(scratch / "out")), (Words{"update 3", "update 4", "update 5", "update 6"}));
  profiled(scratch, "sft", "short", {"--profile", "3", "--max_steps", "1"});
  EXPECT_EQ(updates_in(tracks_of(scratch / "short")), Words{"update 1"});
}

TEST(ProfileRun, EvaluationsAndCheckpointsBetweenUpdatesAreApart) {
  const Scratch scratch;
  const Words more = {"--eval_strategy", "steps", "--eval_steps", "1", "--save_strategy", "steps", "--save_steps", "2"};
  profiled(scratch, "classify", "plain", more);
  Words with = more;
  with.insert(with.end(), {"--profile", "3"});
  profiled(scratch, "classify", "out", with);
  EXPECT_TRUE(read_file(scratch / "out" / "model.safetensors") == read_file(scratch / "plain" / "model.safetensors"));
  const Tracks tracks = tracks_of(scratch / "out");
  for (const auto& [track, events] : tracks) expect_nested(events);
  EXPECT_TRUE(names_in(tracks).contains("evaluation"));
  EXPECT_TRUE(names_in(tracks).contains("checkpoint"));
  EXPECT_NE(read_file(scratch / "out" / "profile" / "table.txt").find("between these updates: evaluations "), std::string::npos);
}

TEST(ProfileRun, AContinuedRunIsProfiledFromItsOwnThirdUpdate) {
  const Scratch scratch;
  profiled(scratch, "sft", "plain", {});
  profiled(scratch, "sft", "out", {"--max_steps", "2", "--save_strategy", "steps", "--save_steps", "1", "--lr_scheduler_type",
                                   "constant"});
  profiled(scratch, "sft", "whole", {"--lr_scheduler_type", "constant"});
  const std::string err =
      profiled(scratch, "sft", "out", {"--save_strategy", "steps", "--save_steps", "1", "--lr_scheduler_type", "constant",
                                       "--resume_from_checkpoint", "last", "--profile", "1"});
  EXPECT_EQ(updates_in(tracks_of(scratch / "out")), Words{"update 5"});
  EXPECT_EQ(err.find("changed profile"), std::string::npos) << err;
  EXPECT_TRUE(read_file(scratch / "out" / "model.safetensors") == read_file(scratch / "whole" / "model.safetensors"));
}

TEST(ProfileRun, APlaceThatCannotBeWrittenIsToldBeforeTraining) {
  const Scratch scratch;
  fs::create_directories(scratch / "out");
  scratch.write("out/profile", "a file");
  const Ended ended = run(scratch, profile_args(scratch, "sft", "out", {"--profile", "2", "--overwrite_output_dir"}));
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  EXPECT_NE(ended.err.find((scratch / "out" / "profile").string()), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("update 1"), std::string::npos) << ended.err;
  EXPECT_TRUE(lines_of(scratch / "out" / "metrics.jsonl").empty());
  EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
}

TEST(ProfileRun, ANumberThatIsNoneIsRefused) {
  const Scratch scratch;
  for (const char* bad : {"0", "-1", "1001", "many"}) {
    const Ended ended = run(scratch, profile_args(scratch, "sft", "out", {"--profile", bad}));
    EXPECT_EQ(ended.exit_code, 2) << bad;
    EXPECT_NE(ended.err.find("profile"), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace lockstep::cli
