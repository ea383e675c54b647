#include "lockstep/options/resolve.h"

#include "lockstep/options/check.h"

namespace lockstep::options {

Resolved resolve(std::span<const std::string> args, const Fields& fields) {
  Resolved resolved;
  Problems of_command_line;
  const CommandLine command_line = read_command_line(args, fields, of_command_line);
  resolved.help = command_line.help;
  resolved.dry_run = command_line.dry_run;
  resolved.meant = command_line.meant;
  if (resolved.help != Help::None) return resolved;

  if (command_line.config) {
    YamlFile file = read_yaml(*command_line.config, fields, resolved.problems);
    apply(file.settings, fields, resolved.origins);
    resolved.environment = std::move(file.environment);
  }
  apply(command_line.settings, fields, resolved.origins);
  for (const std::string& text : of_command_line.texts()) resolved.problems.add(text);
  check(fields, resolved.origins, resolved.problems, resolved.notes);
  return resolved;
}

}  // namespace lockstep::options
