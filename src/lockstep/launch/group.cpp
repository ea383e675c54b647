#include "lockstep/launch/group.h"

#include "lockstep/base/thread_team.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/local_group.h"

#include <utility>

namespace lockstep::launch {

namespace {

std::vector<WorkerStart> worker_starts(const GroupSpec& spec, const Outputs& outputs) {
  const Environment inherited = current_environment();
  const int num_threads = threads_per_worker(spec.threads_per_process, available_cores(), spec.num_workers);
  const std::string cbwr = mkl_cbwr(cpu_flags());
  std::vector<std::string> argv = {spec.command.string()};
  argv.insert(argv.end(), spec.args.begin(), spec.args.end());
  std::vector<WorkerStart> starts;
  for (int rank = 0; rank < spec.num_workers; ++rank) {
    starts.push_back({.world_rank = rank, .argv = argv,
                      .environment = worker_environment(
                          inherited, spec.env,
                          {.local_rank = rank, .num_workers = spec.num_workers, .num_threads = num_threads,
                           .run_folder = spec.run_folder, .control_fd = kWorkerControlFd, .mkl_cbwr = cbwr,
                           .terminal_columns = terminal_columns(outputs.err_fd)})});
  }
  return starts;
}

}  // namespace

GroupResult run_group(const GroupSpec& spec, const Outputs& outputs) {
  Console console(outputs);
  console.begin_round(spec.num_workers);
  LocalGroup group({.kind = GroupSettings::Kind::Own, .record_folder = spec.run_folder, .timeouts = spec.timeouts},
                   console, console);
  group.start(worker_starts(spec, outputs));
  while (group.running()) group.step(Milliseconds::max());

  GroupResult result{.ends = group.ends(), .interrupted_by = group.interrupted_by(), .done_text = group.done_text()};
  result.cause = first_cause(result.ends);
  result.exit_code = group_exit_code(result.ends, result.cause, result.interrupted_by);
  result.report = failure_report(result.ends, result.cause, result.interrupted_by);
  if (!result.report.empty()) console.print(Stream::Err, result.report);
  group.flush();
  return result;
}

}  // namespace lockstep::launch
