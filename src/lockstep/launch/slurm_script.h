#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// What `lockstep slurm` takes before `--`; named as sbatch names them. visit() is written in the words of
/// options/field.h.
struct SlurmScriptOptions {
  int64_t nodes = 1;
  std::optional<int64_t> gpus_per_node;
  std::optional<int64_t> cpus_per_task;
  std::optional<std::string> mem;
  std::optional<std::string> time;
  std::optional<std::string> partition;
  std::optional<std::string> account;
  std::optional<std::string> qos;
  std::optional<std::string> job_name;
  std::optional<std::string> output;
  std::optional<std::string> signal;
  std::optional<bool> requeue;
  bool exclusive = false;
  std::vector<std::string> sbatch_arg;
  std::vector<std::string> srun_arg;
  std::vector<std::string> setup;
  bool submit = false;
  std::optional<std::string> output_script;

  template <class V>
  void visit(V& v) {
    v.group("Allocation");
    v("nodes", nodes, "Number of nodes; lockstep starts once on each.").at_least(1).at_most(65536);
    v("gpus_per_node", gpus_per_node, "GPUs on each node.").unset("none asked for").at_least(0).at_most(1024);
    v("cpus_per_task", cpus_per_task, "CPUs for the one lockstep of a node and all its processes.")
        .unset("the cluster's default, often 1").at_least(1).at_most(65536);
    v("mem", mem, "Memory on each node, as in 64G; 0 means all.").unset("the cluster's default")
        .pattern("[0-9]+[KMGTkmgt]?", "a number with K, M, G or T");
    v("time", time, "Time limit: minutes, HH:MM:SS or D-HH:MM:SS.").unset("the partition's default")
        .pattern("[0-9]+(-[0-9]+)?(:[0-9]+){0,2}", "minutes, HH:MM:SS or D-HH:MM:SS");
    v("partition", partition, "Partition (queue).").unset("the cluster's default");
    v("account", account, "Account that is charged.").unset("the user's default");
    v("qos", qos, "Quality of service.").unset("the account's default");
    v("exclusive", exclusive, "No other jobs on the nodes.");
    v.group("Job");
    v("job_name", job_name, "Name of the job.").unset("the first word after --");
    v("output", output, "File for the job's output; %j is the job id.").unset("slurm-%j.out");
    v("signal", signal,
      "Warning before the time limit, as in TERM@120: lockstep passes it to the processes and ends with their save.")
        .unset("none: SIGTERM at the limit, SIGKILL after KillWait")
        .pattern("([RB]:|RB:)?[A-Za-z0-9]+(@[0-9]+)?", "a signal and seconds, as in TERM@120");
    v("requeue", requeue, "Whether the job starts again after a node failure or preemption.")
        .unset("the cluster's default");
    v("sbatch_arg", sbatch_arg, "A further option for sbatch, such as --sbatch_arg=--constraint=h200; may be "
                                "repeated.");
    v("srun_arg", srun_arg, "A further option for srun; may be repeated.");
    v("setup", setup, "A line of shell to run before, such as --setup 'module load gcc'; may be repeated.");
    v.group("What to do with the script");
    v("submit", submit, "Hand it to sbatch and print the job's id.");
    v("output_script", output_script, "Write it to this file instead of printing it.").unset("printed");
  }
};

/// The batch script that runs `program` with `words` (such as sft --config run.yaml) once on each node. Pure; the same
/// input gives the same text. Throws Error{Usage} for a value that cannot be written on a line.
std::string slurm_script(const SlurmScriptOptions& options, const std::string& program,
                         std::span<const std::string> words);

/// `word` as a POSIX shell reads it back, quoted only where needed.
std::string shell_quote(std::string_view word);
std::string shell_line(std::span<const std::string> words);

}  // namespace lockstep::launch
