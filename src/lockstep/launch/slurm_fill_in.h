#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/launch/slurm_environment.h"

#include <span>

namespace lockstep::launch {

/// What the user gave on the command line or in PET_*; absent: nothing.
struct SlurmGiven {
  std::optional<int> max_nodes = {};  ///< of --nnodes MIN:MAX
  std::optional<int> node_rank = {};
  std::optional<std::string> endpoint_host = {};  ///< of --rdzv_endpoint, or --master_addr
  std::optional<int> endpoint_port = {};          ///< of --master_port; for an endpoint without a host
  std::optional<std::string> run_id = {};
  std::optional<int> nproc = {};
  bool standalone = false;
};

/// What holds in a step. An absent optional was given by the user (see SlurmGiven), or cannot be told.
struct SlurmFillIn {
  std::optional<int> num_nodes = {};              ///< min = max
  std::optional<int> node_rank = {};              ///< present: holds, whatever --node_rank says
  std::optional<std::string> endpoint_host = {};
  std::optional<int> endpoint_port = {};          ///< with endpoint_host
  /// Whether the endpoint, derived or given, is this node by SLURM's names; absent: they do not tell.
  std::optional<bool> is_endpoint_here = {};
  std::optional<std::string> run_id = {};
  std::optional<int> gpus_per_node = {};          ///< above 0: as many processes, for programs that use GPUs
  std::vector<std::string> lines = {};            ///< for the user: what was derived, from which variable
  std::vector<std::string> warnings = {};         ///< what was given and does not fit; the same on every node
  std::optional<std::string> rank_warning = {};   ///< the --node_rank that was given does not hold
};

/// Fills in what the user left open. Flags win, but SLURM_NODEID decides the node rank where the job is the step.
/// With --standalone or --nnodes 1 in a step of several nodes, each node runs a job of its own (a warning says so). A
/// job of one node needs nothing but its number of processes.
/// Throws Error{Usage} for several tasks per node, and for a loopback endpoint in a job of several nodes.
SlurmFillIn fill_in(const SlurmStep& step, const SlurmGiven& given);

/// Where the agents of `step` meet by default: a port from 20000 to 29999, below those that the kernel hands out. The
/// same for all nodes; different for most others, so that two steps on a node rarely collide (run ids keep them apart).
int slurm_port(const SlurmStep& step);

/// "localhost", ::1, 127.x.x.x: each node would meet itself.
bool is_loopback_text(std::string_view host);

struct BatchAdvice {
  bool refuse = false;  ///< an Error{Usage} with `text`; else a warning
  std::string text;
};

/// For lockstep started by a batch script itself, outside srun: nothing to say for one node. `argv`: the whole command
/// line, repeated in the srun line to type. It is a warning if the user named an endpoint (and may start the other
/// nodes by other means).
std::optional<BatchAdvice> batch_advice(const SlurmBatch& batch, const SlurmGiven& given,
                                        std::span<const std::string> argv);

/// The options that srun needs for lockstep: one task a node, no end of the others by srun before lockstep has told the
/// cause, an end by srun if some remain for a minute.
std::vector<std::string> srun_options();

/// From SIGTERM to SIGKILL of the workers inside a job: `given`, but at least 5 s (or half of a short KillWait) before
/// SLURM itself kills. `kill_wait`: from slurm.conf; SLURM's default is 30 s.
Milliseconds slurm_grace(Milliseconds given, Milliseconds kill_wait);

}  // namespace lockstep::launch
