#pragma once

#include "lockstep/launch/worker_environment.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// What job and step have in common. Absent optionals: SLURM did not say (its variables depend on what was asked for).
struct SlurmJob {
  std::string cluster = {};              ///< SLURM_CLUSTER_NAME; empty where not set
  std::string job_id = {};               ///< SLURM_JOB_ID; each element of an array has its own
  int restart_count = 0;                 ///< how often the job was requeued
  fs::path submit_dir = {};              ///< where sbatch, salloc or srun was typed; may be empty
  std::optional<int> cpus_on_node = {};  ///< allocated here
  std::optional<int> gpus_on_node = {};
  std::optional<int64_t> end_time = {};  ///< of the allocation, seconds since 1970; SLURM 22.05 and older do not tell
  bool operator==(const SlurmJob&) const = default;
};

/// This process was started by srun, once on each of `num_nodes` nodes.
struct SlurmStep {
  SlurmJob job;
  std::string step_id;
  int num_nodes = 1;
  int node_id = 0;                               ///< SLURM_NODEID: this node's place in the step
  std::string node_name = {};                    ///< SLURMD_NODENAME: SLURM's name of this node; empty where not set
  /// SLURM's names, sorted by SLURM; as many as num_nodes. With --distribution=arbitrary hosts[node_id] is another
  /// node.
  std::vector<std::string> hosts = {};
  std::map<std::string, std::string> addresses = {};  ///< host -> address, from SLURM_NODE_ALIASES (cloud nodes)
  std::vector<int> tasks_per_node = {};          ///< by place
  std::string launcher_port = {};                ///< of this step's srun: tells a step from another of the same name

  /// JOB.STEP, after a requeue JOB.STEP.RESTART: no two starts share it.
  std::string run_id() const;
  bool operator==(const SlurmStep&) const = default;
};

/// In an allocation, but not started by srun: a batch script, or the shell of salloc.
struct SlurmBatch {
  SlurmJob job;
  int num_nodes = 1;
  bool interactive = false;  ///< salloc's shell, which is a step in name only
  bool operator==(const SlurmBatch&) const = default;
};

/// At most one of them.
struct SlurmContext {
  std::optional<SlurmStep> step = {};
  std::optional<SlurmBatch> batch = {};
};

/// What SLURM's variables say. Pure. Only SLURM_STEP_* tell a step: a batch script has SLURM_NODEID=0 and SLURM_NNODES
/// as well. A job that is submitted inside a step inherits that step's SLURM_STEP_*: they count for nothing where they
/// name other nodes than this one or than the job's. LOCKSTEP_SLURM=0 in the environment: neither step nor batch.
/// Throws Error{Usage} naming the variable and its value when one is malformed, when two contradict each other
/// (SLURM_STEP_NUM_NODES=3, but SLURM_STEP_NODELIST has 2 hosts) or for a heterogeneous job.
SlurmContext read_slurm(const Environment& environment);

/// "72(x2),36" -> 72 72 36. Throws Error{Usage} naming `origin`; at most 65,536 numbers.
std::vector<int> parse_slurm_counts(std::string_view text, std::string_view origin);

}  // namespace lockstep::launch
