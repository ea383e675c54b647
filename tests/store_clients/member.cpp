// usage: store_clients_member RANK PORT. One rank of a group over the store at 127.0.0.1:PORT; ends with 0 when its
// sums are right.
#include "store_clients/reduce.h"

#include <fmt/core.h>

#include <cstdlib>
#include <exception>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return lockstep::rendezvous::reduce_as(std::atoi(argv[1]), static_cast<uint16_t>(std::atoi(argv[2]))) ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  }
}
