#include "lockstep/base/hash.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace lockstep {
namespace {

// The five primes and the steps below are those of the specification (xxHash, doc/xxhash_spec.md, "XXH64").
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

static_assert(std::endian::native == std::endian::little, "words are read in the machine's order");

template <class Word>
uint64_t load(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

uint64_t round(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

uint64_t merge_lane(uint64_t hash, uint64_t lane) { return (hash ^ round(0, lane)) * kPrime1 + kPrime4; }

uint64_t avalanche(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  const std::byte* next = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = seed + kPrime5;
  if (left >= 32) {
    uint64_t lanes[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
    for (; left >= 32; next += 32, left -= 32) {
      for (size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], load<uint64_t>(next + 8 * i));
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = merge_lane(hash, lane);
  }
  hash += bytes.size();
  for (; left >= 8; next += 8, left -= 8) {
    hash = std::rotl(hash ^ round(0, load<uint64_t>(next)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ (load<uint32_t>(next) * kPrime1), 23) * kPrime2 + kPrime3;
    next += 4;
    left -= 4;
  }
  for (; left > 0; ++next, --left) {
    hash = std::rotl(hash ^ (load<uint8_t>(next) * kPrime5), 11) * kPrime1;
  }
  return avalanche(hash);
}

std::string to_hex(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace lockstep
