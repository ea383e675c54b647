// A front program around run_group: RUN_FOLDER NUM_WORKERS WORKER ARGUMENT...
#include "lockstep/launch/group.h"

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const lockstep::launch::GroupSpec spec = {.command = argv[3],
                                            .args = std::vector<std::string>(argv + 4, argv + argc),
                                            .num_workers = std::stoi(argv[2]),
                                            .run_folder = argv[1]};
  try {
    return lockstep::launch::run_group(spec, {}).exit_code;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
