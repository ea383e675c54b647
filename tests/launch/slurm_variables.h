#pragma once

#include "lockstep/launch/worker_environment.h"

namespace lockstep::launch {

/// As SLURM 22.05 sets them in a step, here on node 1 of 2. A change to an empty value counts as unset.
inline Environment step_variables(const Environment& changes = {}) {
  Environment variables = {{"SLURMD_NODENAME", "n1"},
                           {"SLURM_CLUSTER_NAME", "test"},
                           {"SLURM_CPUS_ON_NODE", "4"},
                           {"SLURM_GPUS_ON_NODE", "2"},
                           {"SLURM_JOB_ID", "7"},
                           {"SLURM_JOB_NODELIST", "n[0-1]"},
                           {"SLURM_JOB_NUM_NODES", "2"},
                           {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                           {"SLURM_NNODES", "2"},
                           {"SLURM_NODEID", "1"},
                           {"SLURM_NODE_ALIASES", "(null)"},
                           {"SLURM_NTASKS", "2"},
                           {"SLURM_PROCID", "1"},
                           {"SLURM_SRUN_COMM_PORT", "39169"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_LAUNCHER_PORT", "39169"},
                           {"SLURM_STEP_NODELIST", "n[0-1]"},
                           {"SLURM_STEP_NUM_NODES", "2"},
                           {"SLURM_STEP_NUM_TASKS", "2"},
                           {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                           {"SLURM_SUBMIT_DIR", "/home/u"}};
  for (const auto& [name, value] : changes) variables.insert_or_assign(name, value);
  return variables;
}

/// As in the batch script of the same job: no step, yet a SLURM_NODEID.
inline Environment batch_variables(const Environment& changes = {}) {
  Environment variables = {{"SLURMD_NODENAME", "n0"},
                           {"SLURM_CLUSTER_NAME", "test"},
                           {"SLURM_CPUS_ON_NODE", "4"},
                           {"SLURM_GPUS_ON_NODE", "2"},
                           {"SLURM_JOB_ID", "7"},
                           {"SLURM_JOB_NODELIST", "n[0-1]"},
                           {"SLURM_JOB_NUM_NODES", "2"},
                           {"SLURM_NNODES", "2"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_NODE_ALIASES", "(null)"},
                           {"SLURM_NTASKS", "2"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_SUBMIT_DIR", "/home/u"}};
  for (const auto& [name, value] : changes) variables.insert_or_assign(name, value);
  return variables;
}

}  // namespace lockstep::launch
