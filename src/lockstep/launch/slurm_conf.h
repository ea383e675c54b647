#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/launch/worker_environment.h"

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// What lockstep wants to know of a cluster's slurm.conf. Read from the file: asking the controller (scontrol) from
/// every node of a large job would be a burst of requests.
struct SlurmConf {
  std::optional<Milliseconds> kill_wait = {};  ///< KillWait: from SIGTERM to SIGKILL
  std::optional<int> kill_on_bad_exit = {};
  std::string munge_socket = {};               ///< of AuthInfo; empty: munge's own
};

/// Pure. Unknown lines are passed over; files named by Include are not read.
SlurmConf parse_slurm_conf(std::string_view text);

/// $SLURM_CONF, then the usual places, then nothing (all absent): a container may not have the file.
SlurmConf read_slurm_conf(const Environment& environment);

}  // namespace lockstep::launch
