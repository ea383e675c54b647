#pragma once

#include "lockstep/launch/run_spec.h"

#include <string>

namespace lockstep::launch {

/// The whole environment of a worker of a foreign program: the caller's, then torchrun's variables, then LOCKSTEP_*.
/// Pure. `error_file` is empty where no error records are kept. Throws Error{Usage} when --virtual_local_rank asks for
/// a device that the caller's CUDA_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES) does not list.
Environment torchrun_environment(const RunSpec& spec, const Placement& placement, int local_rank,
                                 const std::string& error_file);

/// One line about OMP_NUM_THREADS when it is set to 1 for the workers; else empty.
std::string omp_note(const RunSpec& spec);

}  // namespace lockstep::launch
