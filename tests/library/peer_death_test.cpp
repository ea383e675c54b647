// A process of a user's program dies inside Trainer::train(): the others end soon, and say why.
#include "program.h"

#include "lockstep/base/deadline.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <list>
#include <thread>

namespace lockstep::library_test {
namespace {

const std::string kFront = fs::path(LOCKSTEP_BIN_DIR) / "lockstep";
constexpr double kSoon_s = 5;

/// Takes a checkpoint every third update, so that one may be under way.
std::vector<std::string> long_run(const fs::path& output) {
  const fs::path data = LOCKSTEP_TEST_DATA;
  return {LONG_RUN_PROGRAM, data / "models" / "tiny" / "bert", data / "solution-pairs", "--num_train_epochs", "100000",
          "--per_device_train_batch_size", "4", "--save_strategy", "steps", "--save_steps", "3", "--save_total_limit", "2",
          "--threads_per_process", "1", "--disable_tqdm", "--output_dir", output};
}

bool wait_for(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::in(std::chrono::seconds(30));
  while (!condition() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

bool trains(const fs::path& output) {
  std::error_code ignored;
  return wait_for([&] { return fs::file_size(output / "metrics.jsonl", ignored) > 2000 && !ignored; });
}

void expect_names_the_cause(const ProgramEnded& ended) {
  EXPECT_EQ(ended.exit_code, 5) << ended.err;
  EXPECT_NE(ended.err.find("a peer of rank"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("closed its connection or failed"), std::string::npos) << ended.err;
}

/// The process below `front` that was started as this rank; there is a guard beside the workers.
pid_t worker_of(pid_t front, const std::string& rank) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", front));
  for (pid_t pid = 0; children >> pid;) {
    const std::string environment = read_file(fmt::format("/proc/{}/environ", pid));
    if (('\0' + environment).find(std::string(1, '\0') + "RANK=" + rank + '\0') != std::string::npos) return pid;
  }
  return -1;
}

/// Rank 0 holds the store, too.
TEST(PeerDeath, WithNoMoreThanTorchsVariablesTheOthersThrow) {
  for (const int victim : {0, 1, 2}) {
    SCOPED_TRACE(victim);
    const TempFolder scratch("lockstep-peer-death");
    const std::string port = std::to_string(free_port());
    std::list<Program> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back(scratch.path(), long_run(scratch.path() / "out"),
                         Variables{{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", std::to_string(rank)},
                                   {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    }
    ASSERT_TRUE(trains(scratch.path() / "out"));
    const auto died = Clock::now();
    kill(std::next(ranks.begin(), victim)->pid(), SIGKILL);
    int rank = 0;
    for (Program& program : ranks) {
      const ProgramEnded ended = program.wait();
      if (rank++ == victim) {
        EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
      } else {
        expect_names_the_cause(ended);
      }
    }
    EXPECT_LT(seconds_since(died), kSoon_s);
  }
}

TEST(PeerDeath, UnderLockstepRunTheJobEndsWithTheVictimsCode) {
  for (const char* victim : {"0", "1"}) {
    SCOPED_TRACE(victim);
    const TempFolder scratch("lockstep-peer-death");
    std::vector<std::string> words = long_run(scratch.path() / "out");
    words.insert(words.begin(), {kFront, "run", "--nproc_per_node", "2"});
    Program front(scratch.path(), words);
    ASSERT_TRUE(trains(scratch.path() / "out"));
    const pid_t worker = worker_of(front.pid(), victim);
    ASSERT_GT(worker, 0);
    const auto died = Clock::now();
    kill(worker, SIGKILL);
    const ProgramEnded ended = front.wait();
    EXPECT_LT(seconds_since(died), kSoon_s);
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
    EXPECT_NE(ended.err.find(fmt::format("lockstep: rank {} (pid {}) failed first: killed by SIGKILL", victim, worker)),
              std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace lockstep::library_test
