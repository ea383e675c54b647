#include "lockstep/launch/node_run.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/host_name.h"
#include "lockstep/launch/torch_error.h"
#include "lockstep/launch/torchrun_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace lockstep::launch {

namespace {

GroupSettings settings_for(const RunSpec& spec) {
  GroupSettings settings;
  settings.kind = GroupSettings::Kind::Foreign;
  settings.timeouts.stop_grace = spec.shutdown_timeout;
  settings.timeouts.interrupt_grace = spec.shutdown_timeout;
  settings.ending_signals = spec.signals;
  settings.passed_signals = {SIGUSR1, SIGUSR2};
  return settings;
}

std::vector<std::string> argv_for(const RunSpec& spec, int local_rank) {
  constexpr std::string_view kMacro = "${local_rank}";
  const std::string value = std::to_string(local_rank);
  std::vector<std::string> argv = spec.command;
  for (size_t i = 1; i < argv.size(); ++i) {
    for (size_t at = argv[i].find(kMacro); at != std::string::npos; at = argv[i].find(kMacro, at + value.size())) {
      argv[i].replace(at, kMacro.size(), value);
    }
  }
  return argv;
}

const WorkerEnd& end_of(const RoundOutcome& outcome) {
  return *std::find_if(outcome.ends.begin(), outcome.ends.end(),
                       [&](const WorkerEnd& end) { return end.world_rank == outcome.cause->world_rank; });
}

}  // namespace

NodeRun::NodeRun(const RunSpec& spec, const Outputs& outputs)
    : spec_(spec), console_(outputs), logs_(spec, console_), group_(settings_for(spec), console_, logs_) {}

void NodeRun::start(const Placement& placement) {
  logs_.begin_attempt(placement);
  ooms_.emplace();
  std::vector<WorkerStart> starts;
  for (int local_rank = 0; local_rank < spec_.num_workers; ++local_rank) {
    starts.push_back({.world_rank = placement.rank_base + local_rank, .argv = argv_for(spec_, local_rank),
                      .environment = torchrun_environment(spec_, placement, local_rank, logs_.error_file(local_rank)),
                      .out = logs_.route_of(local_rank, Stream::Out).target,
                      .err = logs_.route_of(local_rank, Stream::Err).target});
  }
  group_.start(starts);
}

RoundOutcome NodeRun::take_outcome() {
  RoundOutcome outcome{.ends = group_.ends()};
  const bool had_oom = ooms_ && ooms_->has_risen();
  for (WorkerEnd& end : outcome.ends) {
    if (end.signal == 0 && end.exit_status == 0) continue;
    end.torch_error = read_torch_error(logs_.error_file(end.local_rank));
    if (classify(end) == EndClass::Orderly) continue;
    end.last_lines = logs_.last_lines(end.local_rank);
    end.was_out_of_memory = had_oom && end.signal == SIGKILL;
  }
  outcome.cause = first_cause(outcome.ends);
  outcome.exit_code = group_exit_code(outcome.ends, outcome.cause, group_.interrupted_by());
  outcome.succeeded = !outcome.cause && std::all_of(outcome.ends.begin(), outcome.ends.end(), [](const WorkerEnd& end) {
    return end.signal == 0 && end.exit_status == 0 && !end.still_there;
  });
  if (outcome.cause) outcome.cause_text = cause_in_a_line(end_of(outcome));
  return outcome;
}

int NodeRun::finish(const RoundOutcome& outcome, const std::string& elsewhere, int elsewhere_code) {
  const bool is_elsewhere = !elsewhere.empty();
  if (outcome.cause && !is_elsewhere) {
    const WorkerEnd& first = end_of(outcome);
    console_.print(Stream::Err, torchrun_summary(spec_.entry_name, own_host_name(), outcome.ends, *outcome.cause));
    if (first.torch_error && spec_.error_file) {
      const std::string problem = hand_up_torch_error(*first.torch_error, torch_exit_code(first), *spec_.error_file);
      if (!problem.empty()) console_.say(problem);
    }
  }
  const int code = is_elsewhere ? elsewhere_code : outcome.exit_code;
  logs_.close(code == 0);
  if (code != 0 && logs_.run_folder()) console_.say("logs: " + logs_.run_folder()->string());
  const std::string report = failure_report(outcome.ends, outcome.cause, group_.interrupted_by());
  if (is_elsewhere) {
    console_.say(elsewhere);
  } else if (!report.empty()) {
    console_.print(Stream::Err, report);
  }
  group_.flush();
  return code != 0 && spec_.exit_code_is_one ? 1 : code;
}

}  // namespace lockstep::launch
