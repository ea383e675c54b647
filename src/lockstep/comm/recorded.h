#pragma once

#include "lockstep/comm/communicator.h"

#include <memory>

namespace lockstep::comm {

/// `inner`, each call of which is a span of the calling thread's profile (base/profile.h), if it has one: collectives over
/// tensors with the bytes that this rank must send; small messages as waiting for the other ranks.
std::unique_ptr<Communicator> make_recorded(std::unique_ptr<Communicator> inner);

}  // namespace lockstep::comm
