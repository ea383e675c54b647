#pragma once

#include "lockstep/launch/agent_nodes.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/run_command_line.h"
#include "lockstep/launch/slurm_environment.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A job as this node will run it: what was asked for, completed by what SLURM says.
struct JobPlan {
  RunSpec spec;
  MeetingSpec meeting;
  std::optional<SlurmStep> step = {};      ///< this node's part of an srun step
  std::vector<std::string> notes = {};     ///< for the user; what all nodes would say is said by one of them
  std::vector<std::string> warnings = {};  ///< the same
  bool others_know = false;                ///< all have met, or were told why this node cannot come

  /// The nodes' common words are printed by one of them. Nodes that were started by hand do not know of each other.
  bool speaks_for_all() const { return !step || step->node_id == 0; }
};

/// Pure. `argv`: the whole command line, for the srun line that a batch script is told to use. Throws Error{Usage}.
JobPlan plan_job(ParsedRun parsed, const Environment& environment, const RunMachine& machine,
                 std::span<const std::string> argv);

/// The launch options of lockstep's own commands in the words of `lockstep run`; accelerate's names become torchrun's.
/// Pure.
ParsedRun as_run(const LaunchOptions& options, const options::Origins& origins, int64_t num_workers,
                 const std::string& program);

/// Does `work`, the part of this node in a job of several. Where the machine makes it fail before the nodes have met, and this
/// is the host of the endpoint, those that wait there are told why (tell_absence()). Throws what `work` throws.
int run_or_tell_the_others(JobPlan& plan, const std::function<int()>& work);

/// run_on_nodes() with the job's token: what find_token() finds; else, in a SLURM step, a secret of its own that its
/// nodes exchange (slurm_token.h). Node 0 makes it, the others wait for it; it is removed once all have met.
int run_plan_on_nodes(JobPlan& plan, NodeJob& job);

}  // namespace lockstep::launch
