// lockstep sft: from its command line to its workers.
#include "lockstep/apps/own_command.h"
#include "lockstep/recipes/sft_cli.h"

#include <fmt/format.h>

namespace lockstep::apps {

int run_sft(const Invocation& invocation) {
  const double started = unix_seconds();
  require_readable_words(invocation);
  const options::Environment environment = environment_of_step();
  const recipes::ParsedSft parsed = recipes::parse_sft(invocation.args, environment);
  if (parsed.help) {
    fmt::print("{}", *parsed.help);
    return 0;
  }
  OwnCommand command;
  command.name = "sft";
  command.launch = &parsed.options.launch;
  command.origins = &parsed.origins;
  command.environment = &parsed.environment;
  command.notes = parsed.notes;
  command.dry_run = parsed.dry_run;
  command.resolved = recipes::resolved_sft_text(parsed, environment.page);
  command.run_file = recipes::dump_sft(parsed);
  command.output_dir = parsed.options.train.output_dir.value_or("trainer_output");
  command.require_local_inputs = [&] {
    require_model_folder(*parsed.options.model.model_name_or_path);
    require_another_output(*parsed.options.model.model_name_or_path, command.output_dir,
                           parsed.options.train.overwrite_output_dir, parsed.options.checkpoints.save_strategy != "no");
    require_data("dataset_name", *parsed.options.data.dataset_name);
  };
  return run_own_command(command, invocation, started);
}

}  // namespace lockstep::apps
