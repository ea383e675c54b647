#pragma once

#include "lockstep/comm/communicator.h"

#include <string>
#include <vector>

namespace lockstep::comm {

/// Communicator::all_gather_text of a backend that moves tensors: lengths first, then all texts at the longest's length.
std::vector<std::string> gather_text_as_tensors(Communicator& comm, const std::string& mine, const char* what);

}  // namespace lockstep::comm
