#include "lockstep/launch/slurm_fill_in.h"

#include "launch/slurm_variables.h"
#include "lockstep/base/error.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

namespace lockstep::launch {
namespace {

SlurmStep step(const Environment& changes = {}) { return read_slurm(step_variables(changes)).step.value(); }

std::string refused_step(const SlurmStep& of, const SlurmGiven& given) {
  try {
    fill_in(of, given);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "no error";
}

const Environment kOneNode = {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_NODEID", "0"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1"}};

TEST(SlurmFillIn, WithoutFlagsEverythingIsDerivedAndSaid) {
  const SlurmFillIn derived = fill_in(step(), {});
  EXPECT_EQ(derived.num_nodes, 2);
  EXPECT_EQ(derived.node_rank, 1);
  EXPECT_EQ(derived.endpoint_host, "n0");
  EXPECT_EQ(derived.run_id, "7.0");
  EXPECT_EQ(derived.gpus_per_node, 2);
  EXPECT_TRUE(derived.warnings.empty());
  const std::string port = std::to_string(*derived.endpoint_port);
  EXPECT_EQ(derived.lines, (std::vector<std::string>{
                               "2 nodes n0, n1 (SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST)",
                               "2 processes per node (SLURM_GPUS_ON_NODE)", "node rank by SLURM_NODEID (1 here)",
                               "endpoint n0:" + port + " (first host of SLURM_STEP_NODELIST, the port from job and "
                                                       "step)",
                               "run id 7.0 (SLURM_JOB_ID, SLURM_STEP_ID)"}));
}

TEST(SlurmFillIn, AllNodesDeriveTheSameButTheirRank) {
  const SlurmFillIn first = fill_in(step({{"SLURM_NODEID", "0"}, {"SLURMD_NODENAME", "n0"}}), {});
  const SlurmFillIn second = fill_in(step(), {});
  EXPECT_EQ(first.endpoint_port, second.endpoint_port);
  EXPECT_EQ(first.endpoint_host, second.endpoint_host);
  EXPECT_EQ(first.run_id, second.run_id);
  EXPECT_EQ(first.is_endpoint_here, true);
  EXPECT_EQ(second.is_endpoint_here, false);
  EXPECT_EQ(first.node_rank, 0);
  EXPECT_EQ(second.node_rank, 1);
}

TEST(SlurmFillIn, PortsOfStepsAreSpreadOverTheirRange) {
  std::set<int> ports;
  for (int job = 0; job < 100; ++job) {
    const int port = slurm_port(step({{"SLURM_JOB_ID", std::to_string(job)}}));
    EXPECT_GE(port, 20'000);
    EXPECT_LE(port, 29'999);
    ports.insert(port);
  }
  EXPECT_GE(ports.size(), 95U);
  EXPECT_NE(slurm_port(step({{"SLURM_STEP_ID", "1"}})), slurm_port(step()));
  EXPECT_NE(slurm_port(step({{"SLURM_RESTART_COUNT", "1"}})), slurm_port(step()));
}

TEST(SlurmFillIn, WithArbitraryDistributionTheEndpointIsNotNodeZero) {
  const SlurmFillIn derived = fill_in(step({{"SLURM_NODEID", "1"}, {"SLURMD_NODENAME", "n0"}}), {});
  EXPECT_EQ(derived.endpoint_host, "n0");
  EXPECT_EQ(derived.is_endpoint_here, true);
  EXPECT_EQ(derived.node_rank, 1);
}

TEST(SlurmFillIn, AnAliasGivesTheAddress) {
  const SlurmFillIn derived = fill_in(step({{"SLURM_NODE_ALIASES", "n0:10.0.0.5:host0"}}), {});
  EXPECT_EQ(derived.endpoint_host, "10.0.0.5");
  EXPECT_NE(derived.lines.at(3).find("address of n0 in SLURM_NODE_ALIASES"), std::string::npos);
}

TEST(SlurmFillIn, FlagsWin) {
  const SlurmFillIn derived =
      fill_in(step(), {.max_nodes = 2, .endpoint_host = "other", .run_id = "mine", .nproc = 3});
  EXPECT_EQ(derived.num_nodes, std::nullopt);
  EXPECT_EQ(derived.endpoint_host, std::nullopt);
  EXPECT_EQ(derived.endpoint_port, std::nullopt);
  EXPECT_EQ(derived.run_id, std::nullopt);
  EXPECT_EQ(derived.node_rank, 1);
  EXPECT_EQ(derived.lines, (std::vector<std::string>{"node rank by SLURM_NODEID (1 here)"}));
}

TEST(SlurmFillIn, WhoHostsIsToldBySlurmsNames) {
  const auto is_host = [](const std::string& endpoint, const Environment& changes = {}) {
    return fill_in(step(changes), {.endpoint_host = endpoint}).is_endpoint_here;
  };
  EXPECT_EQ(is_host("n1"), true);
  EXPECT_EQ(is_host("n0"), false);
  EXPECT_EQ(is_host("10.0.0.1"), std::nullopt);
  EXPECT_EQ(is_host("n1", {{"SLURMD_NODENAME", ""}}), std::nullopt);
  EXPECT_EQ(fill_in(step({{"SLURMD_NODENAME", ""}}), {}).is_endpoint_here, std::nullopt);
}

TEST(SlurmFillIn, AGivenPortIsKept) {
  const SlurmFillIn derived = fill_in(step(), {.endpoint_port = 29511});
  EXPECT_EQ(derived.endpoint_host, "n0");
  EXPECT_EQ(derived.endpoint_port, 29511);
  EXPECT_NE(derived.lines.at(3).find("n0:29511 (first host of SLURM_STEP_NODELIST, the port by --master_port)"),
            std::string::npos) << derived.lines.at(3);
}

TEST(SlurmFillIn, TheNodeRankIsSlurms) {
  // What the batch shell makes of --node_rank $SLURM_NODEID on every node.
  const SlurmFillIn derived = fill_in(step(), {.max_nodes = 2, .node_rank = 0, .endpoint_host = "n0"});
  EXPECT_EQ(derived.node_rank, 1);
  ASSERT_TRUE(derived.rank_warning);
  EXPECT_NE(derived.rank_warning->find("--node_rank 0 is overridden by SLURM_NODEID=1"), std::string::npos);
  EXPECT_EQ(fill_in(step(), {.node_rank = 1}).rank_warning, std::nullopt);
}

TEST(SlurmFillIn, AJobLargerThanTheStepHasItsOwnRanks) {
  const SlurmFillIn derived = fill_in(step(), {.max_nodes = 4, .node_rank = 3, .endpoint_host = "head"});
  EXPECT_EQ(derived.node_rank, std::nullopt);
  ASSERT_EQ(derived.warnings.size(), 1U);
  EXPECT_NE(derived.warnings[0].find("--nnodes 4 differs from the step's 2 nodes"), std::string::npos);
}

TEST(SlurmFillIn, OneNodeNeedsNoEndpoint) {
  const SlurmFillIn derived = fill_in(step(kOneNode), {});
  EXPECT_EQ(derived.endpoint_host, std::nullopt);
  EXPECT_EQ(derived.run_id, std::nullopt) << "a job of one node gets a new name each time";
  EXPECT_EQ(derived.lines, (std::vector<std::string>{"2 processes per node (SLURM_GPUS_ON_NODE)"}));
  EXPECT_TRUE(derived.warnings.empty());
  EXPECT_EQ(refused_step(step(kOneNode), {.endpoint_host = "localhost"}), "no error");
}

TEST(SlurmFillIn, StandaloneJobsOnEachNodeAreMeantAndSaid) {
  for (const SlurmGiven& given : {SlurmGiven{.standalone = true}, SlurmGiven{.max_nodes = 1}}) {
    const SlurmFillIn derived = fill_in(step(), given);
    EXPECT_EQ(derived.num_nodes, std::nullopt);
    EXPECT_EQ(derived.node_rank, std::nullopt);
    EXPECT_EQ(derived.run_id, std::nullopt);
    ASSERT_EQ(derived.warnings.size(), 1U);
    EXPECT_NE(derived.warnings[0].find("each of the step's 2 nodes"), std::string::npos);
  }
  EXPECT_TRUE(fill_in(step(kOneNode), {.standalone = true}).warnings.empty());
}

TEST(SlurmFillIn, SeveralTasksOnANodeAreRefused) {
  const SlurmStep crowded = step({{"SLURM_STEP_TASKS_PER_NODE", "1,4"}});
  for (const SlurmGiven& given : {SlurmGiven{}, SlurmGiven{.max_nodes = 1}}) {
    const std::string message = refused_step(crowded, given);
    EXPECT_NE(message.find("4 times on node n1"), std::string::npos) << message;
    EXPECT_NE(message.find("srun --ntasks-per-node=1"), std::string::npos) << message;
  }
  EXPECT_EQ(refused_step(crowded, {.standalone = true}), "no error");
}

TEST(SlurmFillIn, ALoopbackEndpointForSeveralNodesIsRefused) {
  for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.0.1.1", "::1", "[::1]", "localhost.localdomain",
                           "ip6-localhost"}) {
    const std::string message = refused_step(step(), {.max_nodes = 2, .endpoint_host = host});
    EXPECT_NE(message.find(fmt::format("the endpoint {} is", host)), std::string::npos) << message;
    EXPECT_NE(message.find("takes n0"), std::string::npos) << message;
  }
  for (const char* host : {"n0", "10.0.0.1", "127x.example.org", "localhost2", "fe80::1"}) {
    EXPECT_EQ(refused_step(step(), {.endpoint_host = host}), "no error") << host;
  }
}

TEST(SlurmFillIn, ManyHostsAreNotAllListed) {
  const SlurmStep large = step({{"SLURM_STEP_NUM_NODES", "1000"}, {"SLURM_STEP_NODELIST", "n[0-999]"},
                                {"SLURM_STEP_TASKS_PER_NODE", "1(x1000)"}, {"SLURM_JOB_NODELIST", ""}});
  EXPECT_EQ(fill_in(large, {}).lines.at(0), "1000 nodes n0, n1, n2, n3, ... (SLURM_STEP_NUM_NODES, "
                                            "SLURM_STEP_NODELIST)");
}

TEST(SlurmBatchAdvice, GivesTheLineToType) {
  const SlurmBatch batch = *read_slurm(batch_variables()).batch;
  const std::vector<std::string> argv = {"/opt/bin/lockstep", "sft", "--run_name", "a b", "--env", "X='1'"};
  const auto advice = batch_advice(batch, {}, argv);
  ASSERT_TRUE(advice);
  EXPECT_TRUE(advice->refuse);
  EXPECT_NE(advice->text.find("the batch script of job 7 on 2 nodes"), std::string::npos) << advice->text;
  EXPECT_NE(advice->text.find("\n  srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=60 /opt/bin/lockstep "
                              "sft --run_name 'a b' --env 'X='\\''1'\\'''\n"),
            std::string::npos)
      << advice->text;
}

TEST(SlurmBatchAdvice, OnlyWarnsWhereTheOthersMayComeByOtherMeans) {
  const SlurmBatch batch = *read_slurm(batch_variables()).batch;
  EXPECT_FALSE(batch_advice(batch, {.max_nodes = 2, .endpoint_host = "n0"}, {})->refuse);
  EXPECT_TRUE(batch_advice(batch, {.max_nodes = 2, .endpoint_host = "localhost"}, {})->refuse);
  EXPECT_FALSE(batch_advice(batch, {.max_nodes = 1}, {}));
  EXPECT_FALSE(batch_advice(batch, {.standalone = true}, {}));
  EXPECT_FALSE(batch_advice(*read_slurm(batch_variables({{"SLURM_JOB_NUM_NODES", "1"}})).batch, {}, {}));
}

TEST(SlurmGrace, EndsBeforeSlurmKills) {
  using std::chrono::seconds;
  EXPECT_EQ(slurm_grace(seconds(25), seconds(30)), seconds(25));
  EXPECT_EQ(slurm_grace(seconds(30), seconds(30)), seconds(25));
  EXPECT_EQ(slurm_grace(seconds(3), seconds(30)), seconds(3));
  EXPECT_EQ(slurm_grace(seconds(30), seconds(3)), Milliseconds(1500));
  EXPECT_EQ(slurm_grace(seconds(30), seconds(8)), seconds(4));
  EXPECT_EQ(slurm_grace(seconds(300), seconds(120)), seconds(115));
}

}  // namespace
}  // namespace lockstep::launch
