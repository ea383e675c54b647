#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep doctor [--rdzv_endpoint HOST:PORT] [--listen] ...`: checks this node, and the way to the endpoint, and
/// says what to change; see --help. With --listen it then answers other doctors until its time is over or it is
/// interrupted. `args`: the words after `lockstep doctor`. Returns 0, or 4 when something FAILs. Throws Error{Usage},
/// and Error{Environment} when it cannot listen.
int run_doctor_command(const std::vector<std::string>& args);

}  // namespace lockstep::launch
