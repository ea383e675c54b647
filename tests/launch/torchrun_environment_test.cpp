#include "lockstep/launch/torchrun_environment.h"

#include "launch/run_words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

/// As `env | sort` prints it.
std::string text_of(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : environment) text += fmt::format("{}={}\n", name, value);
  return text;
}

RunSpec spec_for(const std::string& line, const Environment& environment) {
  options::Words notes;
  return make_run_spec(parse_line(line, environment), environment,
                       {.num_cpus = 2, .num_gpus = {}, .fresh_id = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"}, notes);
}

Placement one_node(const RunSpec& spec, uint16_t port) {
  return {.world_size = spec.num_workers, .role_world_size = spec.num_workers, .master_addr = spec.endpoint_host,
          .master_port = port};
}

TEST(TorchrunEnvironment, WithoutFlags) {
  const RunSpec spec = spec_for("--nproc_per_node 2 train.py", {{"HOME", "/root"}});
  EXPECT_EQ(text_of(torchrun_environment(spec, one_node(spec, 40001), 1, "/tmp/l/x/attempt_0/1/error.json")),
            "GROUP_RANK=0\n"
            "GROUP_WORLD_SIZE=1\n"
            "HOME=/root\n"
            "LOCAL_RANK=1\n"
            "LOCAL_WORLD_SIZE=2\n"
            "LOCKSTEP_NODE_INDEX=0\n"
            "LOCKSTEP_RESTART_COUNT=0\n"
            "MASTER_ADDR=localhost\n"
            "MASTER_PORT=40001\n"
            "OMP_NUM_THREADS=1\n"
            "RANK=1\n"
            "ROLE_NAME=default\n"
            "ROLE_RANK=1\n"
            "ROLE_WORLD_SIZE=2\n"
            "TORCHELASTIC_ERROR_FILE=/tmp/l/x/attempt_0/1/error.json\n"
            "TORCHELASTIC_MAX_RESTARTS=0\n"
            "TORCHELASTIC_RESTART_COUNT=0\n"
            "TORCHELASTIC_RUN_ID=1b4e28ba-2fa1-41d2-883f-0016d3cca427\n"
            "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT\n"
            "TORCHELASTIC_USE_AGENT_STORE=True\n"
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
            "WORLD_SIZE=2\n");
}

TEST(TorchrunEnvironment, StandaloneWithOneWorkerAndAnUnsharedStore) {
  const RunSpec spec = spec_for("--standalone --role trainer train.py", {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}});
  EXPECT_EQ(text_of(torchrun_environment(spec, one_node(spec, 40001), 0, "")),
            "GROUP_RANK=0\n"
            "GROUP_WORLD_SIZE=1\n"
            "LOCAL_RANK=0\n"
            "LOCAL_WORLD_SIZE=1\n"
            "LOCKSTEP_NODE_INDEX=0\n"
            "LOCKSTEP_RESTART_COUNT=0\n"
            "MASTER_ADDR=localhost\n"
            "MASTER_PORT=40001\n"
            "RANK=0\n"
            "ROLE_NAME=trainer\n"
            "ROLE_RANK=0\n"
            "ROLE_WORLD_SIZE=1\n"
            "TORCHELASTIC_ERROR_FILE=\n"
            "TORCHELASTIC_MAX_RESTARTS=0\n"
            "TORCHELASTIC_RESTART_COUNT=0\n"
            "TORCHELASTIC_RUN_ID=1b4e28ba-2fa1-41d2-883f-0016d3cca427\n"
            "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT\n"
            "TORCHELASTIC_USE_AGENT_STORE=False\n"
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n"
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
            "WORLD_SIZE=1\n");
}

TEST(TorchrunEnvironment, StaticWithAPort) {
  const RunSpec spec = spec_for("--master_port 29511 --nproc_per_node 2 --signals_to_handle SIGTERM train.py",
                                {{"OMP_NUM_THREADS", "4"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}});
  EXPECT_EQ(text_of(torchrun_environment(spec, one_node(spec, spec.endpoint_port), 0, "/e")),
            "GROUP_RANK=0\n"
            "GROUP_WORLD_SIZE=1\n"
            "LOCAL_RANK=0\n"
            "LOCAL_WORLD_SIZE=2\n"
            "LOCKSTEP_NODE_INDEX=0\n"
            "LOCKSTEP_RESTART_COUNT=0\n"
            "MASTER_ADDR=127.0.0.1\n"
            "MASTER_PORT=29511\n"
            "OMP_NUM_THREADS=4\n"
            "RANK=0\n"
            "ROLE_NAME=default\n"
            "ROLE_RANK=0\n"
            "ROLE_WORLD_SIZE=2\n"
            "TORCHELASTIC_ERROR_FILE=/e\n"
            "TORCHELASTIC_MAX_RESTARTS=0\n"
            "TORCHELASTIC_RESTART_COUNT=0\n"
            "TORCHELASTIC_RUN_ID=none\n"
            "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM\n"
            "TORCHELASTIC_USE_AGENT_STORE=True\n"
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=3\n"
            "WORLD_SIZE=2\n");
}

TEST(TorchrunEnvironment, SeveralNodesAfterARestart) {
  const RunSpec spec = spec_for(
      "--nnodes 3 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint n0:29500 --rdzv_id job --max_restarts 4 x.py",
      {{"LOCKSTEP_DEADLINE", "of an outer job"}, {"RANK", "9"}});
  const Placement placement = {.restart_count = 2, .group_rank = 1, .group_world_size = 3, .rank_base = 4,
                               .world_size = 8, .role_rank_base = 4, .role_world_size = 8,
                               .master_addr = "10.0.0.1", .master_port = 4000, .node_index = 2, .host_list_file = "/tmp/hosts", .deadline = 1800000000};
  EXPECT_EQ(text_of(torchrun_environment(spec, placement, 1, "/e")),
            "GROUP_RANK=1\n"
            "GROUP_WORLD_SIZE=3\n"
            "LOCAL_RANK=1\n"
            "LOCAL_WORLD_SIZE=2\n"
            "LOCKSTEP_DEADLINE=1800000000\n"
            "LOCKSTEP_HOST_LIST_FILE=/tmp/hosts\n"
            "LOCKSTEP_NODE_INDEX=2\n"
            "LOCKSTEP_RESTART_COUNT=2\n"
            "MASTER_ADDR=10.0.0.1\n"
            "MASTER_PORT=4000\n"
            "OMP_NUM_THREADS=1\n"
            "RANK=5\n"
            "ROLE_NAME=default\n"
            "ROLE_RANK=5\n"
            "ROLE_WORLD_SIZE=8\n"
            "TORCHELASTIC_ERROR_FILE=/e\n"
            "TORCHELASTIC_MAX_RESTARTS=4\n"
            "TORCHELASTIC_RESTART_COUNT=2\n"
            "TORCHELASTIC_RUN_ID=job\n"
            "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT\n"
            "TORCHELASTIC_USE_AGENT_STORE=True\n"
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
            "WORLD_SIZE=8\n");
}

TEST(TorchrunEnvironment, SaysWhenItSetsTheThreads) {
  EXPECT_NE(omp_note(spec_for("--nproc_per_node 2 x", {})), "");
  EXPECT_EQ(omp_note(spec_for("x", {})), "");
  EXPECT_EQ(omp_note(spec_for("--nproc_per_node 2 x", {{"OMP_NUM_THREADS", ""}})), "");
}

TEST(TorchrunEnvironment, GivesEachWorkerOneDeviceInVirtualMode) {
  struct Case {
    Environment inherited;
    const char* cuda;
    const char* hip;  ///< "" when it must be absent
  };
  for (const Case& c : {Case{{}, "1", ""}, Case{{{"CUDA_VISIBLE_DEVICES", "4, 6,7"}}, "6", ""},
                        Case{{{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"}}, "GPU-b", ""},
                        Case{{{"HIP_VISIBLE_DEVICES", "2,3"}, {"CUDA_VISIBLE_DEVICES", "0"}}, "3", "3"}}) {
    const RunSpec spec = spec_for("--virtual_local_rank --nproc_per_node 2 x", c.inherited);
    Environment result = torchrun_environment(spec, one_node(spec, 1), 1, "");
    EXPECT_EQ(result["LOCAL_RANK"], "0");
    EXPECT_EQ(result["RANK"], "1");
    EXPECT_EQ(result["CUDA_VISIBLE_DEVICES"], c.cuda);
    EXPECT_EQ(result["HIP_VISIBLE_DEVICES"], c.hip);
  }
  const RunSpec spec = spec_for("--virtual_local_rank --nproc_per_node 2 x", {{"CUDA_VISIBLE_DEVICES", "5"}});
  const std::string error = usage_error([&] { torchrun_environment(spec, one_node(spec, 1), 1, ""); });
  EXPECT_NE(error.find("local rank 1 has no device in CUDA_VISIBLE_DEVICES=5"), std::string::npos) << error;
}

}  // namespace
}  // namespace lockstep::launch
