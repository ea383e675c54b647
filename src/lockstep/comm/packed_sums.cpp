#include "lockstep/comm/packed_sums.h"

#include <algorithm>
#include <array>
#include <bit>

// A tile is 64 rows of 16 lanes. Lane by lane, 64 values of w bits are w whole words, and all lanes shift alike: row by row
// that is vector code without a table.
#if defined(__x86_64__)
#define LS_FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define LS_FOR_EACH_CPU
#endif

namespace lockstep::comm {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kRows = 64;
static_assert(kLanes * kRows == kTileValues);

/// Small values of either sign are small numbers.
inline uint64_t fold(int64_t value) { return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63); }
inline uint64_t unfold(uint64_t folded) { return (folded >> 1) ^ (0 - (folded & 1)); }

LS_FOR_EACH_CPU unsigned width_of_tile(const int64_t* values) {
  uint64_t bits[kLanes] = {};
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t lane = 0; lane < kLanes; ++lane) bits[lane] |= fold(values[row * kLanes + lane]);
  }
  uint64_t all = 0;
  for (const uint64_t each : bits) all |= each;
  return static_cast<unsigned>(std::bit_width(all));
}

/// `width` from 1 to 64.
LS_FOR_EACH_CPU void pack_tile(const int64_t* values, unsigned width, uint64_t* out) {
  uint64_t word[kLanes] = {};
  unsigned filled = 0;
  for (size_t row = 0; row < kRows; ++row, values += kLanes) {
    uint64_t folded[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) folded[lane] = fold(values[lane]);
    for (size_t lane = 0; lane < kLanes; ++lane) word[lane] |= folded[lane] << filled;
    filled += width;
    if (filled < 64) continue;
    filled -= 64;
    for (size_t lane = 0; lane < kLanes; ++lane) out[lane] = word[lane];
    out += kLanes;
    // What did not fit, if anything: a shift by all 64 bits would be undefined, so it is done in two.
    const unsigned rest = width - filled;
    for (size_t lane = 0; lane < kLanes; ++lane) word[lane] = folded[lane] >> (rest - 1) >> 1;
  }
}

LS_FOR_EACH_CPU void add_tile(const uint64_t* packed, unsigned width, int64_t* sums) {
  const uint64_t mask = ~uint64_t{0} >> (64 - width);
  unsigned used = 0;
  for (size_t row = 0; row < kRows; ++row, sums += kLanes) {
    uint64_t folded[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) folded[lane] = packed[lane] >> used;
    used += width;
    if (used >= 64) {
      used -= 64;
      packed += kLanes;
      const unsigned had = width - used;
      if (used > 0) {
        for (size_t lane = 0; lane < kLanes; ++lane) folded[lane] |= packed[lane] << had;
      }
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] = static_cast<int64_t>(static_cast<uint64_t>(sums[lane]) + unfold(folded[lane] & mask));
    }
  }
}

}  // namespace

size_t pack_sums(std::span<const int64_t> values, std::span<uint64_t> packed) {
  uint64_t* out = packed.data();
  std::array<int64_t, kTileValues> last;
  for (size_t begin = 0; begin < values.size(); begin += kTileValues) {
    const int64_t* tile = values.data() + begin;
    if (values.size() - begin < kTileValues) {
      last.fill(0);
      std::copy(tile, values.data() + values.size(), last.begin());
      tile = last.data();
    }
    const unsigned width = width_of_tile(tile);
    *out++ = width;
    if (width > 0) pack_tile(tile, width, out);
    out += width * kLanes;
  }
  return static_cast<size_t>(out - packed.data());
}

bool add_packed_sums(std::span<const uint64_t> packed, std::span<int64_t> sums) {
  std::array<int64_t, kTileValues> last;
  for (size_t begin = 0; begin < sums.size(); begin += kTileValues) {
    if (packed.empty() || packed[0] > 64 || packed.size() - 1 < packed[0] * kLanes) return false;
    const auto width = static_cast<unsigned>(packed[0]);
    const size_t count = std::min(kTileValues, sums.size() - begin);
    if (width > 0 && count == kTileValues) {
      add_tile(packed.data() + 1, width, sums.data() + begin);
    } else if (width > 0) {
      last.fill(0);
      add_tile(packed.data() + 1, width, last.data());
      for (size_t i = 0; i < count; ++i) {
        sums[begin + i] = static_cast<int64_t>(static_cast<uint64_t>(sums[begin + i]) + static_cast<uint64_t>(last[i]));
      }
    }
    packed = packed.subspan(1 + width * kLanes);
  }
  return packed.empty();
}

}  // namespace lockstep::comm
