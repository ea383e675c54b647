#include "lockstep/launch/host_name.h"

#include <unistd.h>

#include <array>

namespace lockstep::launch {

std::string own_host_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace lockstep::launch
