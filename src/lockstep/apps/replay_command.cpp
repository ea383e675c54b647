// lockstep replay: from its command line to the workers of the command that is replayed.
#include "lockstep/apps/own_command.h"
#include "lockstep/base/error.h"
#include "lockstep/recipes/replay_cli.h"

#include <fmt/format.h>

namespace lockstep::apps {

int run_replay(const Invocation& invocation) {
  const double started = unix_seconds();
  require_readable_words(invocation);
  const options::Environment environment = environment_of_step();
  const recipes::ParsedReplay parsed = recipes::parse_replay(invocation.args, environment);
  if (parsed.help) {
    fmt::print("{}", *parsed.help);
    return 0;
  }
  const recipes::ReplayJob job = recipes::prepare_replay(parsed, environment.page);
  OwnCommand command;
  command.name = job.command;
  command.launch = &parsed.options.launch;
  command.origins = &parsed.origins;
  command.environment = &parsed.environment;
  command.notes = parsed.notes;
  command.dry_run = parsed.dry_run;
  command.resolved = job.resolved;
  command.run_file = job.run_file;
  command.worker_words = recipes::worker_words({parsed.run, job.update, parsed.options.checkpoint});
  command.require_local_inputs = [&] {
    try {
      require_model_folder(job.model_folder);
    } catch (const Error& problem) {
      throw Error(problem.kind(), fmt::format("{} {}/run.json names it as it was typed: start the replay in the folder where the "
                                              "run was started.", problem.what(), parsed.run));
    }
  };
  return run_own_command(command, invocation, started);
}

}  // namespace lockstep::apps
