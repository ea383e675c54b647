#include "lockstep/launch/slurm_environment.h"

#include "launch/slurm_variables.h"
#include "lockstep/base/error.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

std::string refused_environment(const Environment& environment) {
  try {
    read_slurm(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "no error";
}

TEST(SlurmEnvironment, OutsideSlurmThereIsNothing) {
  const SlurmContext context = read_slurm({{"PATH", "/bin"}, {"SLURM_CONF", "/etc/slurm/slurm.conf"}});
  EXPECT_FALSE(context.step);
  EXPECT_FALSE(context.batch);
}

TEST(SlurmEnvironment, AStepAsSrunSetsIt) {
  const SlurmContext context = read_slurm(step_variables());
  ASSERT_TRUE(context.step);
  EXPECT_FALSE(context.batch);
  SlurmStep expected;
  expected.job = {.cluster = "test", .job_id = "7", .submit_dir = "/home/u", .cpus_on_node = 4, .gpus_on_node = 2};
  expected.step_id = "0";
  expected.num_nodes = 2;
  expected.node_id = 1;
  expected.node_name = "n1";
  expected.hosts = {"n0", "n1"};
  expected.tasks_per_node = {1, 1};
  expected.launcher_port = "39169";
  EXPECT_EQ(*context.step, expected);
  EXPECT_EQ(context.step->run_id(), "7.0");
}

TEST(SlurmEnvironment, ARequeueIsPartOfTheRunId) {
  const SlurmStep step = read_slurm(step_variables({{"SLURM_RESTART_COUNT", "2"}})).step.value();
  EXPECT_EQ(step.job.restart_count, 2);
  EXPECT_EQ(step.run_id(), "7.0.2");
}

TEST(SlurmEnvironment, NewerVersionsTellTheEnd) {
  EXPECT_EQ(read_slurm(step_variables({{"SLURM_JOB_END_TIME", "1796025600"}})).step->job.end_time, 1796025600);
  EXPECT_EQ(read_slurm(step_variables()).step->job.end_time, std::nullopt);
}

TEST(SlurmEnvironment, ABatchScriptIsNoStep) {
  const SlurmContext context = read_slurm(batch_variables());
  EXPECT_FALSE(context.step);
  ASSERT_TRUE(context.batch);
  EXPECT_EQ(context.batch->num_nodes, 2);
  EXPECT_EQ(context.batch->job.job_id, "7");
  EXPECT_EQ(context.batch->job.gpus_on_node, 2);
  EXPECT_FALSE(context.batch->interactive);
}

TEST(SlurmEnvironment, SlurmsOwnStepsAreNotTheUsers) {
  for (const char* id : {"4294967290", "interactive"}) {
    const SlurmContext context =
        read_slurm(step_variables({{"SLURM_STEP_ID", id}, {"SLURM_STEP_NUM_NODES", "1"},
                                   {"SLURM_STEP_NODELIST", "n0"}}));
    EXPECT_FALSE(context.step) << id;
    ASSERT_TRUE(context.batch) << id;
    EXPECT_TRUE(context.batch->interactive) << id;
    EXPECT_EQ(context.batch->num_nodes, 2) << id;
  }
  for (const char* id : {"4294967291", "4294967292", "batch", "extern"}) {
    const SlurmContext context = read_slurm(step_variables({{"SLURM_STEP_ID", id}}));
    ASSERT_TRUE(context.batch) << id;
    EXPECT_FALSE(context.batch->interactive) << id;
  }
}

TEST(SlurmEnvironment, VariablesOfAnotherJobsStepCountForNothing) {
  for (const Environment& changes : {Environment{{"SLURMD_NODENAME", "n7"}}, {{"SLURM_JOB_NODELIST", "n[1,7]"}}}) {
    const SlurmContext context = read_slurm(step_variables(changes));
    EXPECT_FALSE(context.step);
    ASSERT_TRUE(context.batch);
    EXPECT_EQ(context.batch->num_nodes, 2);
  }
  EXPECT_TRUE(read_slurm(step_variables({{"SLURM_JOB_NODELIST", "n[0-9]"}, {"SLURM_JOB_NUM_NODES", "10"}})).step)
      << "a step may be smaller than its job";
  EXPECT_TRUE(read_slurm(step_variables({{"SLURM_JOB_NODELIST", ""}, {"SLURMD_NODENAME", ""}})).step);
}

TEST(SlurmEnvironment, OldNamesAndMissingOnes) {
  Environment old = step_variables();
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE",
                           "SLURM_STEP_LAUNCHER_PORT", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE"}) {
    old.erase(name);
  }
  old["SLURM_JOBID"] = "7";
  old["SLURM_STEPID"] = "0";
  const SlurmStep step = *read_slurm(old).step;
  EXPECT_EQ(step.run_id(), "7.0");
  EXPECT_EQ(step.num_nodes, 2);
  EXPECT_EQ(step.tasks_per_node, (std::vector<int>{1, 1}));
  EXPECT_EQ(step.launcher_port, "39169");
  EXPECT_EQ(step.job.cpus_on_node, std::nullopt);
}

TEST(SlurmEnvironment, CloudNodesHaveAddresses) {
  const SlurmStep step =
      read_slurm(step_variables({{"SLURM_NODE_ALIASES", "n0:10.0.0.5:host0,n1:[fd00::7]:host1,n2"}})).step.value();
  EXPECT_EQ(step.addresses, (std::map<std::string, std::string>{{"n0", "10.0.0.5"}, {"n1", "fd00::7"}}));
}

TEST(SlurmEnvironment, ItCanBeSwitchedOff) {
  const SlurmContext context = read_slurm(step_variables({{"LOCKSTEP_SLURM", "0"}, {"SLURM_NODEID", "bad"}}));
  EXPECT_FALSE(context.step);
  EXPECT_FALSE(context.batch);
}

TEST(SlurmEnvironment, ContradictionsAreNamed) {
  struct Case {
    Environment changes;
    std::vector<const char*> expected;
  };
  for (const Case& c : {Case{{{"SLURM_STEP_NUM_NODES", "3"}}, {"SLURM_STEP_NUM_NODES=3", "n[0-1] has 2 hosts"}},
                        {{{"SLURM_NODEID", "2"}}, {"SLURM_NODEID=2", "SLURM_STEP_NUM_NODES=2"}},
                        {{{"SLURM_NODEID", ""}}, {"SLURM_NODEID is not set", "SLURM_STEP_NUM_NODES=2"}},
                        {{{"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}}, {"SLURM_STEP_TASKS_PER_NODE=1(x3)", "3 nodes"}},
                        {{{"SLURM_HET_SIZE", "2"}}, {"SLURM_HET_SIZE=2", "--rdzv_endpoint"}}}) {
    const std::string message = refused_environment(step_variables(c.changes));
    for (const char* expected : c.expected) EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_NE(message.find("LOCKSTEP_SLURM=0"), std::string::npos) << message;
  }
}

TEST(SlurmEnvironment, MalformedValuesAreNamed) {
  for (const auto& [name, value] : EnvironmentPairs{{"SLURM_NODEID", "-1"},
                                                    {"SLURM_NODEID", "one"},
                                                    {"SLURM_STEP_NUM_NODES", "0"},
                                                    {"SLURM_STEP_NUM_NODES", "99999999999999999999"},
                                                    {"SLURM_CPUS_ON_NODE", "0"},
                                                    {"SLURM_GPUS_ON_NODE", "gpu:2"},
                                                    {"SLURM_RESTART_COUNT", "1.5"},
                                                    {"SLURM_JOB_END_TIME", "soon"},
                                                    {"SLURM_JOB_ID", "../x"},
                                                    {"SLURM_STEP_ID", "0 1"},
                                                    {"SLURM_STEP_TASKS_PER_NODE", "1(x2"}}) {
    const std::string message = refused_environment(step_variables({{name, value}}));
    EXPECT_NE(message.find(fmt::format("{}={}", name, value)), std::string::npos) << message;
  }
  EXPECT_NE(refused_environment(step_variables({{"SLURM_STEP_NODELIST", "n[0-1"}})).find("SLURM_STEP_NODELIST=n[0-1, character 2"),
            std::string::npos);
}

TEST(SlurmEnvironment, Counts) {
  using Counts = std::vector<int>;
  EXPECT_EQ(parse_slurm_counts("72(x2),36", "X"), (Counts{72, 72, 36}));
  EXPECT_EQ(parse_slurm_counts("1", "X"), Counts{1});
  EXPECT_EQ(parse_slurm_counts("2(x65536)", "X").size(), 65'536U);
  for (const char* bad : {"", ",", "1,", "1(x)", "1(x0)", "1(2)", "1(x2", "x2", "-1", "1(x65537)", "1(x65536),1",
                          "1(x2)3"}) {
    EXPECT_THROW(parse_slurm_counts(bad, "X"), Error) << bad;
  }
}

}  // namespace
}  // namespace lockstep::launch
