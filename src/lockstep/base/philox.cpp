#include "lockstep/base/philox.h"

#include <algorithm>
#include <cstddef>

#include "lockstep/base/error.h"
#include "lockstep/base/philox_paths.h"

namespace lockstep {
namespace {

// Key increments of Philox4x32 (Salmon et al., table 2): the golden ratio and sqrt(3) - 1.
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

constexpr uint64_t kWordsPerBlock = 4;

/// The finaliser of splitmix64: a bijection of 64 bits.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

using RoundKeys = std::array<uint32_t, detail::kPhiloxKeyWords>;

RoundKeys round_keys(std::array<uint32_t, 2> key) {
  RoundKeys keys;
  for (size_t i = 0; i < keys.size(); i += 2) {
    keys[i] = key[0];
    keys[i + 1] = key[1];
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return keys;
}

auto blocks_of(PhiloxPath path) {
  return path == PhiloxPath::Avx512 ? detail::philox_avx512
         : path == PhiloxPath::Avx2 ? detail::philox_avx2
                                    : detail::philox_plain;
}

}  // namespace

PhiloxPath best_philox_path() {
  static const PhiloxPath best = __builtin_cpu_supports("avx512f") ? PhiloxPath::Avx512
                                 : __builtin_cpu_supports("avx2")  ? PhiloxPath::Avx2
                                                                   : PhiloxPath::Plain;
  return best;
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  std::array<uint32_t, 4> words;
  detail::philox_plain(words.data(), words.size(), round_keys(key).data(), uint64_t{counter[1]} << 32 | counter[0],
                       uint64_t{counter[3]} << 32 | counter[2]);
  return words;
}

std::array<uint32_t, 2> RandomStream::key() const {
  const auto use_number = static_cast<uint32_t>(purpose);
  LS_CHECK(use_number < 256, "purpose = {}", use_number);
  LS_CHECK(module < (1U << 24), "module = {}", module);
  const uint64_t use = uint64_t{use_number} << 56 | uint64_t{module} << 32 | segment;
  const uint64_t bits = mix(use) ^ mix(seed + 0x9E3779B97F4A7C15);
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

uint32_t RandomStream::word(uint64_t position) const {
  uint32_t result;
  fill(&result, position, 1, PhiloxPath::Plain);
  return result;
}

void RandomStream::fill(uint32_t* out, uint64_t first, uint64_t count, PhiloxPath path) const {
  const RoundKeys keys = round_keys(key());
  uint64_t block = first / kWordsPerBlock;
  const uint64_t skipped = first % kWordsPerBlock;
  if (skipped != 0 && count > 0) {
    std::array<uint32_t, kWordsPerBlock> words;
    detail::philox_plain(words.data(), words.size(), keys.data(), block++, ordinal);
    const uint64_t taken = std::min(kWordsPerBlock - skipped, count);
    out = std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(skipped), taken, out);
    count -= taken;
  }
  blocks_of(path)(out, count, keys.data(), block, ordinal);
}

}  // namespace lockstep
