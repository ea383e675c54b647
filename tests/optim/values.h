#pragma once

#include "lockstep/base/philox.h"
#include "lockstep/tensor/exact.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace lockstep::optim {

/// The instruction paths that this processor has.
inline std::vector<tensor::ExactPath> paths() {
  using tensor::ExactPath;
  std::vector<ExactPath> found{ExactPath::Plain};
  if (tensor::best_exact_path() != ExactPath::Plain) {
    found.push_back(ExactPath::Avx2);
  }
  if (tensor::best_exact_path() == ExactPath::Avx512) {
    found.push_back(ExactPath::Avx512);
  }
  return found;
}

/// Roughly logarithmic sizes around `size`, both signs.
inline std::vector<float> random_values(size_t count, uint64_t seed, float size) {
  std::vector<float> values;
  const RandomStream stream{.seed = seed};
  for (size_t i = 0; i < count; ++i) {
    const float unit = stream.uniform(2 * i) - 0.5F;
    values.push_back(size * unit * std::exp2(-10 * stream.uniform(2 * i + 1)));
  }
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace lockstep::optim
