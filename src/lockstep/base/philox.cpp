#include "lockstep/base/philox.h"

#include <algorithm>
#include <cstddef>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Multipliers and key increments of Philox4x32 (Salmon et al., table 2; the increments are the golden ratio and
// sqrt(3) - 1).
constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

constexpr uint64_t kWordsPerBlock = 4;

/// The finaliser of splitmix64: a bijection of 64 bits.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::array<uint32_t, 2> key_of(const RandomStream& stream) {
  const auto purpose = static_cast<uint32_t>(stream.purpose);
  LS_CHECK(purpose < 256, "purpose = {}", purpose);
  LS_CHECK(stream.module < (1U << 24), "module = {}", stream.module);
  const uint64_t use = uint64_t{purpose} << 56 | uint64_t{stream.module} << 32 | stream.segment;
  const uint64_t key = mix(use) ^ mix(stream.seed + 0x9E3779B97F4A7C15);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

std::array<uint32_t, 4> counter_of(uint64_t block, uint64_t ordinal) {
  return {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(ordinal),
          static_cast<uint32_t>(ordinal >> 32)};
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint32_t RandomStream::word(uint64_t position) const {
  return philox4x32(key_of(*this), counter_of(position / kWordsPerBlock, ordinal))[position % kWordsPerBlock];
}

void RandomStream::fill(uint32_t* out, uint64_t first, uint64_t count) const {
  const auto key = key_of(*this);
  uint64_t block = first / kWordsPerBlock;
  const uint64_t skipped = first % kWordsPerBlock;
  if (skipped != 0 && count > 0) {
    const auto words = philox4x32(key, counter_of(block++, ordinal));
    const uint64_t taken = std::min(kWordsPerBlock - skipped, count);
    out = std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(skipped), taken, out);
    count -= taken;
  }
  // Blocks depend on their number alone, so the processor overlaps the rounds of several. Lanes in vector registers
  // were tried and were slower: g++ 12 does not use the 32-bit widening multiplication for them.
  for (; count >= kWordsPerBlock; count -= kWordsPerBlock, out += kWordsPerBlock) {
    const auto words = philox4x32(key, counter_of(block++, ordinal));
    std::copy(words.begin(), words.end(), out);
  }
  if (count > 0) {
    const auto words = philox4x32(key, counter_of(block, ordinal));
    std::copy_n(words.begin(), count, out);
  }
}

}  // namespace lockstep
