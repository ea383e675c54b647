#pragma once

#include "lockstep/launch/run_options.h"
#include "lockstep/launch/run_spec.h"
#include "lockstep/options/field.h"
#include "lockstep/options/text_layout.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A command line of `lockstep run`, with every value's origin: command line, then PET_ variable, then default.
struct ParsedRun {
  RunOptions options;
  options::Origins origins;
  std::vector<std::string> program;  ///< the program (or module) and its arguments, exactly as written
  options::Words notes;              ///< one line each, for the user
  std::optional<std::string> text;   ///< --help or --print_completion: print this, and that is all

  /// By command line or PET_ variable.
  bool is_given(std::string_view key) const;
};

/// Pure. The program is found first: flags are looked for in the words before it and nowhere else. Names of flags may
/// be shortened while they stay unique. Throws Error{Usage} that lists everything that is wrong.
ParsedRun parse_run(std::span<const std::string> args, const Environment& environment, const options::Page& page);

/// What a run depends on beside its words.
struct RunMachine {
  int num_cpus = 1;           ///< in the affinity mask
  std::optional<int> num_gpus;///< visible ones; absent: none
  std::string fresh_id;       ///< a new random UUID, for jobs without a name
};
/// GPUs: the entries of CUDA_VISIBLE_DEVICES if it is set, else the files /dev/nvidia<n>.
RunMachine this_machine(const Environment& environment);

/// Pure. Resolves what the options mean; appends to `notes`. The command is taken over as it is: see
/// resolve_program(). Throws Error{Usage}.
RunSpec make_run_spec(const ParsedRun& parsed, const Environment& environment, const RunMachine& machine,
                      options::Words& notes);

/// Program and arguments as they are executed: `X.py` by PYTHON_EXEC or python3 with -u, `-m module` too, everything
/// else itself, looked for along PATH when it has no slash. Throws Error{Usage} when the program is missing or may not
/// be executed, Error{Environment} when there is no Python.
std::vector<std::string> resolve_program(const ParsedRun& parsed, const Environment& environment);

}  // namespace lockstep::launch
