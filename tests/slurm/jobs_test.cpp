// Jobs of `lockstep run` and `lockstep sft` on a real SLURM that go well; run by with_cluster.sh (two nodes n0 and n1
// with two fake GPUs each).
#include "job_bed.h"

#include <fmt/format.h>

namespace lockstep::launch {
namespace {

constexpr const char* kSrun = "srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=60 ";

/// One line of each of four ranks, two on each node.
void expect_all_ranks(const std::string& text, const std::string& run_id) {
  for (int rank = 0; rank < 4; ++rank) {
    const std::string line =
        fmt::format("rank {} of 4 on n{} group {} of 2 id {}", rank, rank / 2, rank / 2, run_id);
    EXPECT_EQ(count(text, line), 1) << line << "\n" << text;
  }
}

/// As people write it for torchrun: the batch shell expands $SLURM_NODEID, where it is 0 for all nodes.
TEST_F(SlurmJobs, TheFoundingScriptRuns) {
  const std::string job = submit("", R"(MAIN_NODE=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
srun lockstep run --nnodes 2 --nproc_per_node 2 --node_rank $SLURM_NODEID --rdzv_backend c10d --rdzv_endpoint \
     $MAIN_NODE:29500 ./hello)");
  const std::string text = await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << text;
  expect_all_ranks(text, job + ".0");
  EXPECT_EQ(count(text, "--node_rank 0 is overridden by SLURM_NODEID=1"), 1) << text;
  EXPECT_EQ(count(text, "warning"), 1) << text;
}

TEST_F(SlurmJobs, NothingNeedsToBeGiven) {
  const Output output = run(std::string(kSrun) + "--gpus-per-node=2 lockstep run ./hello a 'b c'");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const std::string run_id = output.text.substr(output.text.find("run id ") + 7);
  expect_all_ranks(output.text, run_id.substr(0, run_id.find(' ')) + " a b c");
  for (const char* once : {"lockstep: note: SLURM: 2 nodes n0, n1 (SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST); ",
                           "2 processes per node (SLURM_GPUS_ON_NODE); ", "node rank by SLURM_NODEID (0 here); ",
                           "endpoint n0:2", "run id ", "OMP_NUM_THREADS is not set"}) {
    EXPECT_EQ(count(output.text, once), 1) << once << "\n" << output.text;
  }
  EXPECT_EQ(count(output.text, "token"), 0) << "there is one, so no warning: " << output.text;
}

TEST_F(SlurmJobs, TheTokenIsGoneOnceAllHaveMet) {
  const std::string job = submit("", "srun lockstep run --nproc_per_node 2 ./long");
  ASSERT_TRUE(await_workers()) << output();
  EXPECT_FALSE(has_token_file());
  run("touch stop");
  await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << output();
}

TEST_F(SlurmJobs, WithoutSrunTheLineToTypeIsPrintedAndWorks) {
  const std::string refused = submit("", "$lockstep run --nproc_per_node 2 ./hello 'b c'");
  std::string text = await_end(refused);
  EXPECT_EQ(state_of(refused), "FAILED 2:0") << text;
  const size_t begin = text.find("  srun --nodes=2 --ntasks-per-node=1 ");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::string line = text.substr(begin, text.find('\n', begin) - begin);
  const std::string job = submit("", line);
  text = await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << text;
  expect_all_ranks(text, job + ".0 b c");
}

TEST_F(SlurmJobs, ASubmittedJobRuns) {
  const Output submitted = run("lockstep slurm --nodes 2 --cpus_per_task 2 --output job.out --submit -- run "
                               "--nproc_per_node 2 ./hello 2> said");
  ASSERT_EQ(submitted.exit_code, 0) << submitted.text << run("cat said").text;
  const std::string job = submitted.text.substr(0, submitted.text.find('\n'));
  const std::string text = await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << text;
  expect_all_ranks(text, job + ".0");
}

TEST_F(SlurmJobs, StepsOfOneJobDoNotMix) {
  const std::string job = submit("--cpus-per-task=4", R"(
srun --overlap --mem=0 --cpus-per-task=1 lockstep run --nproc_per_node 2 ./long > first 2>&1 &
until [ -e pid.0 -a -e pid.1 -a -e pid.2 -a -e pid.3 ]; do sleep 0.05; done
for i in 1 2 3; do
  srun --overlap --mem=0 --cpus-per-task=1 lockstep run --nproc_per_node 2 ./hello > step.$i 2>&1 &
done
wait %2 %3 %4; touch stop; wait)");
  await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << output();
  EXPECT_EQ(count(read_file(file("first")), "of run " + job + ".0\n"), 4);
  std::string together;
  for (const char* name : {"step.1", "step.2", "step.3"}) {
    const std::string text = read_file(file(name));
    const size_t at = text.find("run id ");
    ASSERT_NE(at, std::string::npos) << text;
    expect_all_ranks(text, text.substr(at + 7, text.find(' ', at + 7) - at - 7));
    together += text;
  }
  for (int step = 1; step <= 3; ++step) EXPECT_EQ(count(together, fmt::format("id {}.{} (", job, step)), 1) << together;
}

TEST_F(SlurmJobs, SlurmCanBeIgnored) {
  const Output output = run("LOCKSTEP_SLURM=0 " + std::string(kSrun) + "lockstep run ./hello");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  for (const char* node : {"n0", "n1"}) {
    EXPECT_EQ(count(output.text, fmt::format("rank 0 of 1 on {} group 0 of 1", node)), 1) << output.text;
  }
  EXPECT_EQ(count(output.text, "SLURM"), 0) << output.text;
}

/// As a job script would that keeps an environment of another job.
TEST_F(SlurmJobs, VariablesOfAnotherJobCountForNothing) {
  const std::string job = submit("--nodes=1 --export='ALL,SLURM_STEP_ID=0,SLURM_STEP_NUM_NODES=2,"
                                 "SLURM_STEP_NODELIST=n[5-6],SLURM_STEP_TASKS_PER_NODE=1(x2)'",
                                 "lockstep run ./hello");
  const std::string text = await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << text;
  EXPECT_EQ(count(text, "rank 0 of 1 on n0 group 0 of 1"), 1) << text;
}

TEST_F(SlurmJobs, AStepOfOneNodeNeedsNoWords) {
  const Output output = run("srun --nodes=1 --ntasks=1 lockstep run ./hello");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(count(output.text, "lockstep:"), 0) << output.text;
}

#ifdef LOCKSTEP_HAS_WORKER
TEST_F(SlurmJobs, TheResultOfTwoNodesIsThatOfOneProcess) {
  const std::string sft = "lockstep sft --model_name_or_path " LOCKSTEP_TEST_DATA "/models/tiny/llama --dataset_name "
                          LOCKSTEP_TEST_DATA "/gsm8k/chats-96.jsonl --max_length 64 --max_steps 3 "
                          "--global_batch_size 24 --output_dir ";
  const Output one = run(sft + "one");
  ASSERT_EQ(one.exit_code, 0) << one.text;
  const Output two = run(std::string(kSrun) + "--cpus-per-task=2 " + sft + "two --nproc_per_node 2");
  ASSERT_EQ(two.exit_code, 0) << two.text;
  EXPECT_EQ(count(two.text, "on 4 processes"), 1) << two.text;
  EXPECT_EQ(count(two.text, "note: SLURM: 2 nodes n0, n1"), 1) << two.text;
  EXPECT_EQ(run("cmp one/model.safetensors two/model.safetensors").exit_code, 0);
}

TEST_F(SlurmJobs, ADryRunSpeaksOnceForAllNodes) {
  const Output output = run(std::string(kSrun) + "lockstep sft --model_name_or_path " LOCKSTEP_TEST_DATA
                            "/models/tiny/llama --dataset_name " LOCKSTEP_TEST_DATA "/gsm8k/chats-96.jsonl "
                            "--max_length 64 --nproc_per_node 2 --dry_run");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(count(output.text, "8 per process x 4 processes x 1 accumulation = 32 samples per update"), 1)
      << output.text;
  EXPECT_EQ(count(output.text, "nproc_per_node   "), 1) << output.text;
}
#endif

}  // namespace
}  // namespace lockstep::launch
