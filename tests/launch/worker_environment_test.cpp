#include "lockstep/launch/worker_environment.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <functional>

namespace lockstep::launch {
namespace {

std::string usage_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "no error";
}

const WorkerVariables kSecondOfFour = {.local_rank = 1, .num_workers = 4, .num_threads = 2, .run_folder = "/tmp/run",
                                       .control_fd = 3, .mkl_cbwr = "AVX2,STRICT", .terminal_columns = 120};

TEST(WorkerEnvironment, WhatTheFrontSetsTheWorkerReads) {
  const WorkerEnvironment read = parse_worker_environment(worker_environment({}, {}, kSecondOfFour));
  EXPECT_EQ(read.world_rank, 1);
  EXPECT_EQ(read.world_size, 4);
  EXPECT_EQ(read.local_rank, 1);
  EXPECT_EQ(read.local_world_size, 4);
  EXPECT_EQ(read.group_rank, 0);
  EXPECT_EQ(read.master_addr, "127.0.0.1");
  EXPECT_EQ(read.control_fd, 3);
  EXPECT_EQ(read.run_folder, fs::path("/tmp/run"));
  EXPECT_EQ(read.num_threads, 2);
  EXPECT_EQ(read.terminal_columns, 120);
}

TEST(WorkerEnvironment, IsExactlyThis) {
  const Environment expected = {
      {"PATH", "/bin"}, {"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"},
      {"GROUP_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"LOCKSTEP_NODE_ADDR", "127.0.0.1"},
      {"LOCKSTEP_RESTART_COUNT", "0"}, {"LOCKSTEP_RUN_FOLDER", "/tmp/run"}, {"TORCH_CPP_LOG_LEVEL", "ERROR"},
      {"LOCKSTEP_CONTROL_FD", "3"}, {"LOCKSTEP_NUM_THREADS", "2"}, {"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"},
      {"MKL_CBWR", "AVX2,STRICT"}, {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512"}, {"LOCKSTEP_TTY_COLUMNS", "120"},
      {"MINE", "1"}};
  EXPECT_EQ(worker_environment({{"PATH", "/bin"}, {"OMP_NUM_THREADS", "8"}, {"MINE", "0"}}, {{"MINE", "1"}},
                               kSecondOfFour),
            expected);
}

TEST(WorkerEnvironment, TheUserMayTuneTheCacheButNotWhatLockstepDecides) {
  EXPECT_EQ(worker_environment({}, {{"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64"}}, kSecondOfFour)
                .at("ONEDNN_PRIMITIVE_CACHE_CAPACITY"),
            "64");
  const auto with = [](const std::string& name) {
    return usage_error([&] { worker_environment({}, {{name, "9"}}, kSecondOfFour); });
  };
  EXPECT_NE(with("RANK").find("env: RANK=9"), std::string::npos);
  EXPECT_NE(with("OMP_NUM_THREADS").find("--threads_per_process"), std::string::npos);
  EXPECT_NE(with("LOCKSTEP_TTY_COLUMNS").find("Remove the line"), std::string::npos);
  EXPECT_NE(with("A=B").find("A=B"), std::string::npos);
}

TEST(WorkerEnvironment, WithoutVariablesThereIsOneWorker) {
  const WorkerEnvironment read = parse_worker_environment({{"PATH", "/bin"}});
  EXPECT_EQ(read.world_rank, 0);
  EXPECT_EQ(read.world_size, 1);
  EXPECT_FALSE(read.control_fd);
  EXPECT_FALSE(read.run_folder);
  EXPECT_FALSE(read.num_threads);
}

TEST(WorkerEnvironment, BadVariablesAreNamed) {
  struct Case {
    Environment environment;
    const char* expected;
  };
  for (const Case& c : {Case{{{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK=one"},
                        {{{"RANK", "1"}}, "WORLD_SIZE is not"},
                        {{{"WORLD_SIZE", "2"}}, "RANK is not"},
                        {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK=2 and WORLD_SIZE=2"},
                        {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK=-1"},
                        {{{"LOCKSTEP_NUM_THREADS", "0"}}, "LOCKSTEP_NUM_THREADS=0"},
                        {{{"LOCKSTEP_CONTROL_FD", "3x"}}, "LOCKSTEP_CONTROL_FD=3x"}}) {
    const std::string message = usage_error([&] { parse_worker_environment(c.environment); });
    EXPECT_NE(message.find(c.expected), std::string::npos) << message;
  }
}

TEST(ThreadsPerWorker, IsAnEqualShareOfAtLeastOne) {
  EXPECT_EQ(threads_per_worker(std::nullopt, 16, 3), 5);
  EXPECT_EQ(threads_per_worker(std::nullopt, 2, 8), 1);
  EXPECT_EQ(threads_per_worker(4, 2, 8), 4);
}

TEST(MklCbwr, FollowsTheFlags) {
  EXPECT_EQ(mkl_cbwr("fpu avx avx2 avx512f avx512dq avx512cd avx512bw avx512vl"), "AVX512,STRICT");
  EXPECT_EQ(mkl_cbwr("fpu avx avx2 avx512f avx512cd avx512pf"), "AVX2,STRICT");
  EXPECT_EQ(mkl_cbwr("avx2"), "AVX2,STRICT");
  EXPECT_EQ(mkl_cbwr("fpu avx"), "COMPATIBLE");
}

}  // namespace
}  // namespace lockstep::launch
