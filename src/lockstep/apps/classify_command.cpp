// lockstep classify: from its command line to its workers.
#include "lockstep/apps/own_command.h"
#include "lockstep/recipes/classify_cli.h"

#include <fmt/format.h>

namespace lockstep::apps {

int run_classify(const Invocation& invocation) {
  const double started = unix_seconds();
  require_readable_words(invocation);
  const options::Environment environment = environment_of_step();
  const recipes::ParsedClassify parsed = recipes::parse_classify(invocation.args, environment);
  if (parsed.help) {
    fmt::print("{}", *parsed.help);
    return 0;
  }
  OwnCommand command;
  command.name = "classify";
  command.launch = &parsed.options.launch;
  command.origins = &parsed.origins;
  command.environment = &parsed.environment;
  command.notes = parsed.notes;
  command.dry_run = parsed.dry_run;
  command.resolved = recipes::resolved_classify_text(parsed, environment.page);
  command.run_file = recipes::dump_classify(parsed);
  command.output_dir = parsed.options.train.output_dir.value_or("trainer_output");
  command.require_local_inputs = [&] {
    require_model_folder(*parsed.options.model.model_name_or_path);
    const bool saves = recipes::work_of(parsed.options).train != data::Wanted::No &&
                       parsed.options.checkpoints.save_strategy != "no";
    require_another_output(*parsed.options.model.model_name_or_path, command.output_dir,
                           parsed.options.train.overwrite_output_dir, saves);
    const data::ClassifyDataOptions& data = parsed.options.data;
    if (data.dataset_name) require_data("dataset_name", *data.dataset_name);
    if (data.train_file) require_data("train_file", *data.train_file);
    if (data.validation_file) require_data("validation_file", *data.validation_file);
    if (data.test_file) require_data("test_file", *data.test_file);
  };
  return run_own_command(command, invocation, started);
}

}  // namespace lockstep::apps
