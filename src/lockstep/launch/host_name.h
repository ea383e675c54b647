#pragma once

#include <string>

namespace lockstep::launch {

/// What gethostname says; "localhost" where it fails.
std::string own_host_name();

}  // namespace lockstep::launch
