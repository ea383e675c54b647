#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep slurm [options] -- COMMAND ...`: prints a batch script, writes it (--output_script) or submits it
/// (--submit: prints the job's id, and nothing else, on stdout). With --dry_run it prints, whatever else is asked for.
/// `args`: the words after `lockstep slurm`. Returns the
/// exit code; sbatch's own when it refuses. Throws Error{Usage}, and Error{Environment} when sbatch cannot be run.
int run_slurm_command(const std::vector<std::string>& args);

}  // namespace lockstep::launch
