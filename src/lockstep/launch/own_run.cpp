#include "lockstep/launch/own_run.h"

#include "lockstep/base/thread_team.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/limits.h"
#include "lockstep/net/event_loop.h"

#include <algorithm>
#include <utility>

namespace lockstep::launch {

namespace {

/// These workers take SIGTERM for the wish to save and leave, together with those of all other ranks. When one of them has
/// failed they cannot: they may be waiting for it.
GroupTimeouts without_farewell(GroupTimeouts timeouts) {
  timeouts.failure_signal = SIGKILL;
  return timeouts;
}

/// SIGUSR1 is SLURM's usual warning: time is left, so nothing is killed.
GroupSettings settings_of(const GroupSpec& spec) {
  GroupSettings settings;
  settings.kind = GroupSettings::Kind::Own;
  settings.record_folder = spec.run_folder;
  settings.timeouts = without_farewell(spec.timeouts);
  settings.passed_signals = {SIGUSR1};
  settings.passed_words = "which save and leave if they take checkpoints, and else go on";
  return settings;
}

}  // namespace

OwnRun::OwnRun(GroupSpec spec, const Outputs& outputs)
    : spec_(std::move(spec)),
      outputs_(outputs),
      console_(outputs),
      group_(settings_of(spec_), console_, console_) {}

void OwnRun::start(const Placement& placement) {
  clean_run_folder();
  ooms_.emplace();
  console_.begin_round(spec_.num_workers);
  const Environment inherited = current_environment();
  WorkerVariables variables;
  variables.num_workers = spec_.num_workers;
  variables.rank_base = placement.rank_base;
  variables.world_size = placement.world_size;
  variables.group_rank = placement.group_rank;
  variables.restart_count = placement.restart_count;
  if (placement.master_port != 0) {
    variables.master_addr = placement.master_addr;
    variables.master_port = placement.master_port;
    variables.node_addr = placement.own_addr;
  }
  variables.num_threads = threads_per_worker(spec_.threads_per_process, available_cores(), spec_.num_workers);
  variables.run_folder = spec_.run_folder;
  variables.control_fd = kWorkerControlFd;
  variables.mkl_cbwr = mkl_cbwr(cpu_flags());
  variables.terminal_columns = terminal_columns(outputs_.err_fd);

  std::vector<std::string> argv = {spec_.command.string()};
  argv.insert(argv.end(), spec_.args.begin(), spec_.args.end());
  std::vector<WorkerStart> starts;
  for (int local_rank = 0; local_rank < spec_.num_workers; ++local_rank) {
    variables.local_rank = local_rank;
    starts.push_back({.world_rank = placement.rank_base + local_rank, .argv = argv,
                      .environment = worker_environment(inherited, spec_.env, variables)});
  }
  group_.start(starts);
  for (const WorkerEnd& end : group_.ends()) pids_.push_back(end.pid);
}

/// What an earlier round left must not be taken for this one's.
void OwnRun::clean_run_folder() const {
  std::error_code ignored;
  fs::remove(spec_.run_folder / "store", ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(spec_.run_folder)) {
    if (entry.path().filename().string().starts_with("error-rank")) fs::remove(entry.path(), ignored);
  }
}

RoundOutcome OwnRun::take_outcome() {
  RoundOutcome outcome{.ends = group_.ends()};
  const bool had_oom = ooms_ && ooms_->has_risen();
  const Limits limits = current_limits();
  for (WorkerEnd& end : outcome.ends) {
    end.address_space_bytes = limits.address_space_bytes;
    end.was_out_of_memory = had_oom && end.signal == SIGKILL && !end.was_sent(SIGKILL);
    // Rank 0 ends with its last line, and nobody else would miss it where it is alone.
    const bool is_quiet = end.world_rank == 0 && group_.done_text().empty() && classify(end) == EndClass::Orderly;
    end.left_early = end.left_early || (is_quiet && end.signal == 0 && end.exit_status == 0 && end.signals_sent == 0);
  }
  outcome.cause = first_cause(outcome.ends);
  outcome.exit_code = group_exit_code(outcome.ends, outcome.cause, group_.interrupted_by());
  outcome.succeeded = outcome.exit_code == 0 && !outcome.cause;
  if (outcome.cause) {
    outcome.cause_text = cause_in_a_line(*std::find_if(outcome.ends.begin(), outcome.ends.end(), [&](const WorkerEnd& end) {
      return end.world_rank == outcome.cause->world_rank;
    }));
  }
  return outcome;
}

int OwnRun::finish(const RoundOutcome& outcome, const std::string& elsewhere, int elsewhere_code) {
  const std::string report = failure_report(outcome.ends, outcome.cause, group_.interrupted_by());
  if (!elsewhere.empty()) {
    console_.say(elsewhere);
  } else if (!report.empty()) {
    console_.print(Stream::Err, report);
  }
  group_.flush();
  return elsewhere.empty() ? outcome.exit_code : elsewhere_code;
}

int run_rounds(NodeJob& job, int num_workers, int max_restarts) {
  net::EventLoop loop;
  Placement placement;
  placement.world_size = num_workers;
  placement.role_world_size = num_workers;
  while (true) {
    job.start(placement);
    while (job.running()) job.step(Milliseconds::max(), &loop);
    const RoundOutcome outcome = job.take_outcome();
    // Without a cause nothing has failed: the workers have saved and left.
    const bool is_over = !outcome.cause || job.interrupted_by() != 0 || placement.restart_count == max_restarts;
    if (is_over) return job.finish(outcome, {}, 0);
    ++placement.restart_count;
    job.say(fmt::format("{}; all workers are started again, restart {} of {}", outcome.cause_text,
                        placement.restart_count, max_restarts));
  }
}

}  // namespace lockstep::launch
