// What carries tensors between processes cannot be seen in what they train.
#include "command.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::cli {
namespace {

struct Trained {
  std::string weights, optimizer, said;
};

Ended train_over(const char* carrier, const Scratch& scratch, const std::vector<std::string>& more) {
  setenv("LOCKSTEP_COMM", carrier, 1);
  std::vector<std::string> flags = {"--max_steps", "4", "--learning_rate", "1e-3", "--grain_tokens", "256",
                                    "--save_optimizer_state", "--log_level", "debug"};
  flags.insert(flags.end(), more.begin(), more.end());
  Ended ended = run(scratch, sft_args(scratch, flags));
  unsetenv("LOCKSTEP_COMM");
  return ended;
}

Trained trained_over(const char* carrier, int processes) {
  const Scratch scratch;
  const Ended ended =
      train_over(carrier, scratch, {"--nproc_per_node", std::to_string(processes), "--per_device_train_batch_size",
                                    std::to_string(12 / processes)});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return {read_file(scratch / "out/model.safetensors"), read_file(scratch / "out/optimizer_state.safetensors"), ended.err};
}

TEST(Carrier, CannotBeSeenInTheResult) {
  const Trained alone = trained_over("auto", 1);
  ASSERT_GT(alone.weights.size(), 100'000u);
  for (const int processes : {2, 3}) {
    const Trained shared = trained_over("shm", processes), gloo = trained_over("gloo-raw", processes);
    const Trained packed = trained_over("gloo-packed", processes), rings = trained_over("shm-rings", processes);
    EXPECT_NE(shared.said.find("tensors travel through shared memory"), std::string::npos) << shared.said;
    EXPECT_NE(gloo.said.find("tensors travel by gloo"), std::string::npos) << gloo.said;
    for (const Trained* each : {&shared, &gloo, &packed, &rings}) {
      // Not EXPECT_EQ: nobody wants to see the bytes.
      EXPECT_TRUE(alone.weights == each->weights) << processes;
      EXPECT_TRUE(alone.optimizer == each->optimizer) << processes;
    }
  }
  EXPECT_NE(trained_over("auto", 2).said.find("tensors travel through shared memory"), std::string::npos);
}

TEST(Carrier, AnUnknownOneIsRefused) {
  const Scratch scratch;
  const Ended ended = train_over("tcp", scratch, {"--nproc_per_node", "2"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const std::string problem =
      "environment variable LOCKSTEP_COMM = tcp: must be auto, shm, shm-rings, gloo, gloo-raw or gloo-packed.";
  EXPECT_NE(ended.err.find(problem), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace lockstep::cli
