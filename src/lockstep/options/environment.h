#pragma once

#include <cstdint>

#include "lockstep/options/text_layout.h"

namespace lockstep::options {

/// What the parser needs to know about the machine and the terminal.
struct Environment {
  Page page;
  int64_t cores = 1;  ///< that this process may use
  int64_t nodes = 1;  ///< of the job, where something else than an option decides it (a SLURM step)

  /// Asks the system: standard output's width and whether it is a terminal (NO_COLOR and COLUMNS are obeyed).
  static Environment of_this_process();
};

}  // namespace lockstep::options
