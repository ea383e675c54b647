#include "lockstep/base/randperm.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Engine = std::mt19937;

std::vector<int64_t> shuffled_by_32_bits(int64_t n, Engine& engine) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const size_t z = engine() % (order.size() - i);
    std::swap(order[i], order[i + z]);
  }
  return order;
}

std::vector<int64_t> shuffled_by_64_bits(int64_t n, Engine& engine) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t high = engine();
    const uint64_t low = engine();
    const size_t z = (high << 32 | low) % (i + 1);
    order[i] = order[z];
    order[z] = static_cast<int64_t>(i);
  }
  return order;
}

}  // namespace

std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed) {
  LS_CHECK(n >= 0, "n = {}", n);
  Engine engine(static_cast<uint32_t>(seed));
  constexpr int64_t kLargestFor32Bits = std::numeric_limits<uint32_t>::max() / 20;
  return n < kLargestFor32Bits ? shuffled_by_32_bits(n, engine) : shuffled_by_64_bits(n, engine);
}

}  // namespace lockstep
