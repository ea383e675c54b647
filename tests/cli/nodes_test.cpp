// Several agents of one job on this machine: the law over nodes, restarts, and how a failure ends all of them.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <csignal>
#include <list>
#include <utility>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep::cli {
namespace {

/// One that the kernel gives to nobody else at the moment.
int free_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(fd.get(), plain, size), 0);
  EXPECT_EQ(getsockname(fd.get(), plain, &size), 0);
  return ntohs(address.sin_port);
}

/// A job whose agents all run here, each in a scratch folder of its own; all write to the first one's `out`.
class Job {
 public:
  explicit Job(const std::vector<int>& processes, const std::vector<std::string>& more = {}) : port_(free_port()) {
    for (const int count : processes) {
      scratches_.emplace_back();
      std::vector<std::string> flags = {
          "--output_dir", output().string(), "--nnodes", std::to_string(processes.size()), "--rdzv_backend", "c10d",
          "--rdzv_endpoint", "127.0.0.1:" + std::to_string(port_), "--rdzv_id", "nodes-test", "--nproc_per_node",
          std::to_string(count), "--threads_per_process", "1", "--global_batch_size", "24", "--grain_tokens", "256",
          "--save_optimizer_state"};
      flags.insert(flags.end(), more.begin(), more.end());
      agents_.emplace_back(scratches_.back(), sft_args(scratches_.back(), flags));
    }
  }

  fs::path output() const { return scratches_.front() / "out"; }
  Command& agent(size_t index) { return *std::next(agents_.begin(), static_cast<std::ptrdiff_t>(index)); }
  std::vector<Ended> wait() {
    std::vector<Ended> ends;
    for (Command& agent : agents_) ends.push_back(agent.wait());
    return ends;
  }
  std::string leftovers() const {
    std::string found;
    for (const Scratch& scratch : scratches_) found += scratch.leftovers();
    return found;
  }

 private:
  int port_;
  std::list<Scratch> scratches_;
  std::list<Command> agents_;
};

std::string weights_and_state(const fs::path& output) {
  return read_file(output / "model.safetensors") + read_file(output / "optimizer_state.safetensors");
}

std::string simplest() {
  const Scratch scratch;
  const Ended ended = run(scratch, sft_args(scratch, {"--global_batch_size", "24", "--grain_tokens", "256",
                                                      "--threads_per_process", "1", "--save_optimizer_state"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return weights_and_state(scratch / "out");
}

TEST(Nodes, CannotBeSeenInTheResult) {
  const std::string expected = simplest();
  for (const std::vector<int>& processes : {std::vector<int>{1, 1}, {2, 1}, {1, 2, 1}}) {
    SCOPED_TRACE(fmt::format("{} nodes", processes.size()));
    Job job(processes);
    for (const Ended& ended : job.wait()) ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(expected == weights_and_state(job.output())) << "the bits differ";
    EXPECT_EQ(job.leftovers(), "");
  }
}

TEST(Nodes, AFailureOnOneEndsAllWithItsCode) {
  Job job({1, 1}, {"--max_steps", "1000000"});
  ASSERT_TRUE(job.agent(0).wait_for_first_update(job.output()));
  const std::vector<pid_t> victims = job.agent(1).workers();
  ASSERT_EQ(victims.size(), 1u);
  kill(victims[0], SIGKILL);
  const std::vector<Ended> ends = job.wait();
  for (const Ended& ended : ends) {
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
    EXPECT_NE(ended.err.find("killed by SIGKILL"), std::string::npos) << ended.err;
  }
  EXPECT_NE(ends[1].err.find(fmt::format("(pid {}) failed", victims[0])), std::string::npos) << ends[1].err;
  EXPECT_EQ(job.leftovers(), "");
}

TEST(Nodes, ARestartBeginsAgainOnAllAndGivesTheSameBits) {
  const std::string expected = simplest();
  Job job({1, 1}, {"--max_restarts", "1", "--max_steps", "2"});
  // Its workers are killed as soon as they are there, which may be before the first update.
  std::vector<pid_t> victims;
  while (victims.empty()) victims = job.agent(1).workers();
  kill(victims[0], SIGKILL);
  for (const Ended& ended : job.wait()) {
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_TRUE(expected == weights_and_state(job.output())) << "the bits differ";
  EXPECT_EQ(job.leftovers(), "");
}

/// SIGUSR1 is a batch system's warning, after which nothing is restarted. SIGTERM takes a node out of the job, which others
/// may replace where restarts are left.
TEST(Nodes, AWishToStopThatOneHearsSavesOnAll) {
  for (const auto& [signal, restarts] : {std::pair{SIGUSR1, "1"}, std::pair{SIGTERM, "0"}}) {
    SCOPED_TRACE(signal);
    Job job({1, 1}, {"--max_steps", "1000000", "--max_restarts", restarts});
    ASSERT_TRUE(job.agent(0).wait_for_first_update(job.output()));
    job.agent(1).signal(signal);
    const std::vector<Ended> ends = job.wait();
    EXPECT_EQ(ends[1].exit_code, 75) << ends[1].err;
    // Rank 0 speaks for all, wherever it is.
    expect_stopped_with_a_checkpoint({ends[0].exit_code, "", ends[0].err + ends[1].err}, job.output());
    EXPECT_EQ((ends[0].err + ends[1].err).find("failed"), std::string::npos) << ends[0].err << ends[1].err;
    EXPECT_EQ(job.leftovers(), "");
  }
}

TEST(Nodes, OneThatNeverComesIsNamedInTheTimeOut) {
  const Scratch scratch;
  const Ended ended = run(scratch, sft_args(scratch, {"--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                                      fmt::format("127.0.0.1:{}", free_port()), "--rdzv_conf",
                                                      "join_timeout=1"}));
  EXPECT_EQ(ended.exit_code, 6) << ended.err;
  EXPECT_NE(ended.err.find("1 of 2"), std::string::npos) << ended.err;
  EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
}

TEST(OneNode, RestartsFromTheBeginning) {
  const std::string expected = simplest();
  const Scratch scratch;
  Command command(scratch, sft_args(scratch, {"--global_batch_size", "24", "--grain_tokens", "256", "--save_optimizer_state",
                                              "--nproc_per_node", "2", "--max_restarts", "1"}));
  std::vector<pid_t> victims;
  while (victims.empty()) victims = command.workers();
  kill(victims[0], SIGKILL);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("restart 1 of 1"), std::string::npos) << ended.err;
  EXPECT_TRUE(expected == weights_and_state(scratch / "out")) << "the bits differ";
  EXPECT_EQ(scratch.leftovers(), "");
}

}  // namespace
}  // namespace lockstep::cli
