#pragma once

#include "lockstep/launch/group.h"
#include "lockstep/launch/local_group.h"
#include "lockstep/launch/node_job.h"
#include "lockstep/launch/oom.h"

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// lockstep's own workers on this node, for any number of rounds. `spec.run_folder` is emptied of error records and of
/// the ranks' meeting file before each. Thread rules of LocalGroup.
class OwnRun final : public NodeJob {
 public:
  explicit OwnRun(GroupSpec spec, const Outputs& outputs = {});

  void start(const Placement& placement) override;
  void stop(int signal, Milliseconds grace) override { group_.stop(signal, grace); }
  void give_up(Milliseconds grace) override { group_.stop(SIGKILL, grace); }
  void step(Milliseconds longest, net::EventLoop* loop) override { group_.step(longest, loop); }
  bool running() const override { return group_.running(); }
  int interrupted_by() const override { return group_.interrupted_by(); }
  RoundOutcome take_outcome() override;
  int finish(const RoundOutcome& outcome, const std::string& elsewhere, int elsewhere_code) override;
  void say(const std::string& text) override { console_.say(text); }

  /// Rank 0's last line; empty on other nodes.
  const std::string& done_text() const { return group_.done_text(); }
  /// Of all rounds.
  const std::vector<pid_t>& pids() const { return pids_; }

 private:
  void clean_run_folder() const;

  GroupSpec spec_;
  Outputs outputs_;
  Console console_;
  LocalGroup group_;
  std::optional<OomCounter> ooms_;  ///< of the round
  std::vector<pid_t> pids_;
};

/// A job of one node: rounds until one succeeds, a signal comes or the restarts are used up. Returns the exit code.
int run_rounds(NodeJob& job, int num_workers, int max_restarts);

}  // namespace lockstep::launch
