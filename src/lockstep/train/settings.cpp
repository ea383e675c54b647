#include "lockstep/train/settings.h"

#include "lockstep/base/error.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace lockstep::train {
namespace {

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void require_one(const char* name) {
  const std::string value = environment_value(name);
  if (value == "1") return;
  throw Error::environment("{} = '{}': must be 1, because a product's bits may depend on the number of threads. Start "
                           "workers with `lockstep`, which sets it, or export {}=1.",
                           name, value, name);
}

}  // namespace

void require_bit_stable_settings() {
  require_one("OMP_NUM_THREADS");
  require_one("MKL_NUM_THREADS");
  const std::string cbwr = environment_value("MKL_CBWR");
  if (!cbwr.ends_with(",STRICT")) {
    throw Error::environment("MKL_CBWR = '{}': must be AVX512,STRICT or AVX2,STRICT, because MKL's products change bits "
                             "with the operands' alignment otherwise. Start workers with `lockstep`, which sets it.",
                             cbwr);
  }
  if (at::get_num_threads() != 1) {
    throw Error::environment("libtorch computes with {} threads although OMP_NUM_THREADS is 1: something in this process "
                             "changed it. Grains run on threads of lockstep's own.",
                             at::get_num_threads());
  }
}

}  // namespace lockstep::train
