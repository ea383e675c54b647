// What a job's plan takes from SLURM, and what each of its nodes says.
#include "lockstep/launch/job_plan.h"

#include "launch/run_words.h"
#include "launch/slurm_variables.h"
#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

using options::Words;

const RunMachine kMachine = {.num_cpus = 4, .num_gpus = std::nullopt, .fresh_id = "fresh"};

/// In a step of nodes n0 and n1; KillWait is 30 s, as there is no slurm.conf.
JobPlan plan(const std::string& line, int node, Environment changes = {}) {
  changes.emplace("SLURM_NODEID", std::to_string(node));
  changes.emplace("SLURMD_NODENAME", "n" + std::to_string(node));
  const Environment environment = step_variables(changes);
  return plan_job(parse_line(line, environment), environment, kMachine, Words{"lockstep", "run"});
}

bool has(const Words& words, const std::string& part) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word.find(part) != std::string::npos; });
}

TEST(JobPlan, AStepFillsInWhatIsLeftOpen) {
  for (int node = 0; node < 2; ++node) {
    const JobPlan job = plan("./train", node);
    EXPECT_EQ(job.spec.min_nodes, 2);
    EXPECT_EQ(job.spec.max_nodes, 2);
    EXPECT_EQ(job.spec.node_rank, node);
    EXPECT_EQ(job.spec.meeting, Meeting::C10d);
    EXPECT_EQ(job.spec.endpoint_host, "n0");
    EXPECT_EQ(job.spec.run_id, "7.0");
    EXPECT_EQ(job.spec.num_workers, 2) << "SLURM_GPUS_ON_NODE";
    EXPECT_EQ(job.meeting.rank_origin, "SLURM_NODEID");
    EXPECT_EQ(job.meeting.is_host, node == 0);
    EXPECT_EQ(job.spec.shutdown_timeout, Milliseconds(25'000));
  }
}

TEST(JobPlan, OneNodeSaysWhatIsDerived) {
  const JobPlan first = plan("./train", 0);
  ASSERT_EQ(first.notes.size(), 1U);
  EXPECT_TRUE(first.notes[0].starts_with("SLURM: 2 nodes n0, n1 (")) << first.notes[0];
  EXPECT_TRUE(has(first.notes, "; run id 7.0 (")) << first.notes[0];
  EXPECT_TRUE(plan("./train", 1).notes.empty());
  EXPECT_EQ(plan("--standalone ./train", 0).warnings.size(), 1U);
  EXPECT_TRUE(plan("--standalone ./train", 1).warnings.empty());
}

TEST(JobPlan, ARankThatABatchShellExpandedIsReportedOnce) {
  const std::string line = "--nnodes 4 --node_rank 0 --rdzv_backend c10d --rdzv_endpoint n0:29500 ./train";
  for (int node = 0; node < 4; ++node) {
    const JobPlan job = plan(line, node,
                             {{"SLURM_STEP_NUM_NODES", "4"}, {"SLURM_STEP_NODELIST", "n[0-3]"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"}, {"SLURM_JOB_NODELIST", "n[0-3]"}});
    EXPECT_EQ(job.spec.node_rank, node);
    EXPECT_EQ(has(job.warnings, "--node_rank 0 is overridden by SLURM_NODEID=1"), node == 1) << node;
    EXPECT_EQ(job.warnings.size(), node == 1 ? 1U : 0U) << node;
  }
  EXPECT_TRUE(has(plan("--node_rank 1 ./train", 0).warnings, "--node_rank 1 is overridden by SLURM_NODEID=0"));
}

TEST(JobPlan, APortWithoutAHostIsThatOfTheStepsFirstNode) {
  const JobPlan job = plan("--nnodes 2 --master_port 29511 ./train", 1);
  EXPECT_EQ(job.spec.endpoint_host, "n0");
  EXPECT_EQ(job.spec.endpoint_port, 29511);
  EXPECT_EQ(job.spec.meeting, Meeting::C10d);
}

TEST(JobPlan, AJobLargerThanTheStepDoesNotUseItsRanks) {
  const JobPlan job = plan("--nnodes 3 --node_rank 2 --rdzv_backend c10d --rdzv_endpoint n0:29500 ./train", 0);
  EXPECT_EQ(job.spec.node_rank, 2);
  EXPECT_EQ(job.meeting.rank_origin, "--node_rank");
  EXPECT_EQ(job.meeting.is_host, std::nullopt) << "two launchers may be on n0";
}

TEST(JobPlan, OneNodeRefusesTheSettingsThatSeveralRefuse) {
  for (const char* nodes : {"--nnodes 1", "--nnodes 2 --rdzv_endpoint n0:29500"}) {
    const auto refusal = [&](const std::string& conf) {
      const ParsedRun parsed = parse_line(fmt::format("{} --rdzv_conf {} ./train", nodes, conf));
      return usage_error([&] { plan_job(parsed, {}, kMachine, Words{"lockstep", "run"}); });
    };
    EXPECT_TRUE(refusal("join_timeout=abc").starts_with("--rdzv_conf join_timeout=abc: must be a number")) << nodes;
    EXPECT_TRUE(refusal("jion_timeout=9").starts_with("--rdzv_conf jion_timeout=9: there is no such key")) << nodes;
    EXPECT_EQ(refusal("join_timeout=9"), "") << nodes;
  }
}

TEST(JobPlan, WhatTheUserSaysOfTheHostHolds) {
  EXPECT_EQ(plan("--rdzv_conf is_host=0 ./train", 0).meeting.is_host, false);
}

TEST(JobPlan, AStepOfOneNodeIsAJobOfOneNode) {
  const JobPlan job = plan("--nproc_per_node 1 ./train", 0,
                           {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NODELIST", "n0"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  EXPECT_EQ(job.spec.meeting, Meeting::OneNode);
  EXPECT_TRUE(job.notes.empty());
  EXPECT_TRUE(job.warnings.empty());
}

TEST(JobPlan, OutsideSrunABatchScriptOfSeveralNodesIsRefused) {
  const Environment environment = batch_variables();
  const auto start = [&](const std::string& line) {
    return usage_error([&] {
      plan_job(parse_line(line, environment), environment, kMachine, Words{"lockstep", "run", "./train"});
    });
  };
  EXPECT_TRUE(has({start("./train")}, "srun --nodes=2 --ntasks-per-node=1 "));
  EXPECT_EQ(start("--standalone ./train"), "");
  EXPECT_EQ(start("--nnodes 2 --node_rank 0 --rdzv_endpoint n0:29500 ./train"), "") << "only a warning";
}

TEST(JobPlan, SlurmCanBeIgnored) {
  const JobPlan job = plan("./train", 1, {{"LOCKSTEP_SLURM", "0"}});
  EXPECT_EQ(job.spec.max_nodes, 1);
  EXPECT_EQ(job.spec.num_workers, 1);
  EXPECT_TRUE(job.notes.empty());
  EXPECT_FALSE(job.step);
}

TEST(JobPlan, OurOwnCommandsDoNotTakeTheirProcessesFromSlurmsGpus) {
  LaunchOptions options;
  const Environment environment = step_variables();
  const JobPlan job = plan_job(as_run(options, {}, 1, "lockstep sft"), environment, kMachine, Words{"lockstep", "sft"});
  EXPECT_EQ(job.spec.num_workers, 1);
  EXPECT_EQ(job.spec.max_nodes, 2);
}

TEST(JobPlan, AcceleratesWordsAreTorchruns) {
  LaunchOptions options;
  options.num_machines = 3;
  options.machine_rank = 2;
  options.main_process_ip = "10.0.0.1";
  options.main_process_port = 29511;
  options::Origins origins;
  for (const char* key : {"num_machines", "machine_rank", "main_process_ip", "main_process_port"}) {
    origins[key] = options::Origin{.kind = options::Origin::Kind::CommandLine, .file = {}, .line = 0};
  }
  const JobPlan job = plan_job(as_run(options, origins, 2, "lockstep sft"), {}, kMachine, Words{"lockstep", "sft"});
  EXPECT_EQ(job.spec.max_nodes, 3);
  EXPECT_EQ(job.spec.node_rank, 2);
  EXPECT_EQ(job.spec.endpoint_host, "10.0.0.1");
  EXPECT_EQ(job.spec.endpoint_port, 29511);
}

}  // namespace
}  // namespace lockstep::launch
