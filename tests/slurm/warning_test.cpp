// SLURM asks jobs of lockstep's own commands to end: they save, end with 75, and go on elsewhere to the same bits. Run by
// with_cluster.sh (two nodes n0 and n1, KillWait 6 s).
#include "job_bed.h"

#include <fmt/format.h>

namespace lockstep::launch {
namespace {

constexpr const char* kTwoNodes = "srun --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --kill-on-bad-exit=0 --wait=60 ";

/// Long enough for a signal to come between.
std::string classify_command(int num_epochs = 12) {
  return fmt::format("lockstep classify --model_name_or_path {0}/models/tiny/bert --dataset_name {0}/solution-pairs --text_column "
                     "question --text_pair_column solution --max_length 64 --max_train_samples 96 --max_eval_samples 4 "
                     "--ignore_mismatched_sizes --learning_rate 1e-3 --num_train_epochs {1} --global_batch_size 12 "
                     "--save_steps 100000 --output_dir ",
                     LOCKSTEP_TEST_DATA, num_epochs);
}
std::string sft_command() {
  return fmt::format("lockstep sft --model_name_or_path {0}/models/tiny/llama --dataset_name {0}/gsm8k/chats-96.jsonl --max_length "
                     "64 --learning_rate 1e-3 --num_train_epochs 12 --global_batch_size 12 --save_steps 100000 --output_dir ",
                     LOCKSTEP_TEST_DATA);
}

class SlurmWarning : public SlurmJobs {
 protected:
  bool await_first_update(const std::string& folder) const {
    const fs::path metrics = file(folder) / "metrics.jsonl";
    return wait_until(Milliseconds(20'000), [&] { return fs::exists(metrics) && fs::file_size(metrics) > 0; });
  }

  /// The job, which trains into `stopped`, is over and has saved.
  void expect_saved() {
    EXPECT_EQ(count(output(), "lockstep: stopped on request after update "), 1) << output();
    EXPECT_EQ(run("ls stopped/checkpoint-*/manifest.json | wc -l").text, "1\n");
    EXPECT_FALSE(fs::exists(file("stopped/model.safetensors"))) << "it was over before the signal came";
  }

  /// And goes on on one node to the bits of a run that was never stopped.
  void expect_continuable(const std::string& command) {
    expect_saved();
    const Output resumed = run(command + "stopped --nproc_per_node 1 --threads_per_process 2 --resume_from_checkpoint last");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.text;
    const Output whole = run(command + "whole --nproc_per_node 1 --threads_per_process 1");
    EXPECT_EQ(whole.exit_code, 0) << whole.text;
    EXPECT_EQ(run("cmp whole/model.safetensors stopped/model.safetensors").text, "");
  }
};

/// What `sbatch --signal=USR1@60` sends: all tasks of all steps get it.
TEST_F(SlurmWarning, AWarningToTheTasksSaves) {
  const std::string job = submit("--cpus-per-task=2", kTwoNodes + classify_command() + "stopped");
  ASSERT_TRUE(await_first_update("stopped")) << output();
  const auto warned = Clock::now();
  run("scancel --signal=USR1 " + job);
  EXPECT_TRUE(await_no_process(Milliseconds(6'000))) << output();
  EXPECT_LT(seconds_since(warned), 6) << "KillWait";
  await_end(job);
  EXPECT_EQ(state_of(job), "FAILED 75:0") << output();
  EXPECT_EQ(count(output(), "SIGUSR1: passed on to the workers, which save and leave"), 2) << output();
  expect_continuable(classify_command());
}

/// What `sbatch --signal=B:USR1@60` sends: the batch shell alone gets it, and hands it to srun.
TEST_F(SlurmWarning, AWarningToTheBatchShellSaves) {
  const std::string job = submit("--cpus-per-task=2", fmt::format("trap 'kill -USR1 $step' USR1\n{}{}stopped & step=$!\n"
                                                                  "wait $step; wait $step", kTwoNodes, sft_command()));
  ASSERT_TRUE(await_first_update("stopped")) << output();
  run("scancel --batch --signal=USR1 " + job);
  EXPECT_TRUE(await_no_process(Milliseconds(6'000))) << output();
  await_end(job);
  EXPECT_EQ(state_of(job), "FAILED 75:0") << output();
  expect_continuable(sft_command());
}

/// At the time limit, and when the job is cancelled: SIGTERM, then SIGKILL after KillWait.
TEST_F(SlurmWarning, TheTimeBeforeTheKillIsEnoughToSave) {
  const std::string job = submit("--cpus-per-task=2", kTwoNodes + classify_command() + "stopped");
  ASSERT_TRUE(await_first_update("stopped")) << output();
  const auto cancelled = Clock::now();
  run("scancel " + job);
  EXPECT_TRUE(await_no_process(Milliseconds(6'000))) << output();
  EXPECT_LT(seconds_since(cancelled), 6) << "KillWait";
  await_end(job);
  for (const char* node : {"n0: task 0", "n1: task 1"}) {
    EXPECT_EQ(count(output(), fmt::format("srun: error: {}: Exited with exit code 75\n", node)), 1) << output();
  }
  expect_saved();
}

using SlurmWarningSlow = SlurmWarning;

/// SLURM looks at time limits twice a minute.
TEST_F(SlurmWarningSlow, TheWarningBeforeTheTimeLimitSaves) {
  const std::string job = submit("--cpus-per-task=2 --time=1 --signal=USR1@55", kTwoNodes + classify_command(100'000) + "stopped");
  ASSERT_TRUE(await_first_update("stopped")) << output();
  await_end(job, Milliseconds(60'000));
  EXPECT_EQ(state_of(job), "FAILED 75:0") << output();
  expect_saved();
}

}  // namespace
}  // namespace lockstep::launch
