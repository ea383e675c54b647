// The commands that start other programs, for builds under sanitizers: what trains is not built there.
#include "lockstep/apps/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/doctor.h"
#include "lockstep/launch/slurm_command.h"

int lockstep::apps::run_command_line(const std::vector<std::string>& words, const std::vector<std::string>& argv) {
  const std::string command = words.empty() ? "" : words[0];
  const std::vector<std::string> args(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (command == "run") return run_run({args, argv});
  if (command == "slurm") return launch::run_slurm_command(args);
  if (command == "doctor") return launch::run_doctor_command(args);
  throw Error::usage("lockstep {}: this build has run, slurm and doctor alone.", command);
}
