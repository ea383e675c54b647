#pragma once

#include "lockstep/launch/local_group.h"
#include "lockstep/launch/log_tree.h"
#include "lockstep/launch/node_job.h"
#include "lockstep/launch/oom.h"
#include "lockstep/launch/run_spec.h"

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// The workers of a RunSpec on this node, with their environment, log tree and error records. An agent uses it so:
/// start(placement); step() while running(); take_outcome(); perhaps again; finish(). Thread rules of LocalGroup.
class NodeRun final : public NodeJob {
 public:
  explicit NodeRun(const RunSpec& spec, const Outputs& outputs = {});

  /// A round: fresh attempt folder, fresh environment. Throws as LocalGroup::start().
  void start(const Placement& placement) override;
  void stop(int signal, Milliseconds grace) override { group_.stop(signal, grace); }
  void step(Milliseconds longest, net::EventLoop* loop = nullptr) override { group_.step(longest, loop); }
  bool running() const override { return group_.running(); }
  int interrupted_by() const override { return group_.interrupted_by(); }
  Console& console() { return console_; }

  /// Once running() is false after start().
  RoundOutcome take_outcome() override;
  /// Prints the report of the last outcome (torchrun's summary and the first cause), hands the first cause to the
  /// launcher's own error file, removes temporary logs after a success, waits for slow readers. Returns the exit code.
  /// `elsewhere` is the first cause when it lies on another node: then this node prints it in a line and returns
  /// `elsewhere_code`.
  int finish(const RoundOutcome& outcome, const std::string& elsewhere = {}, int elsewhere_code = 0) override;
  void say(const std::string& text) override { console_.say(text); }

 private:
  const RunSpec& spec_;
  Console console_;
  LogTree logs_;
  LocalGroup group_;
  std::optional<OomCounter> ooms_;
};

}  // namespace lockstep::launch
