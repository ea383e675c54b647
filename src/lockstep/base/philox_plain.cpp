#include "lockstep/base/philox_paths.h"

namespace lockstep::detail {
namespace {

struct Block {
  uint32_t words[4];
};

inline Block philox_block(const uint32_t* keys, uint64_t block, uint64_t ordinal) {
  Block c{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(ordinal),
           static_cast<uint32_t>(ordinal >> 32)}};
  for (int round = 0; round < kPhiloxRounds; ++round, keys += 2) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * c.words[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * c.words[2];
    c = {{static_cast<uint32_t>(product1 >> 32) ^ c.words[1] ^ keys[0], static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ c.words[3] ^ keys[1], static_cast<uint32_t>(product0)}};
  }
  return c;
}

}  // namespace

// Blocks depend on their number alone, so the processor overlaps the rounds of several.
void philox_plain(uint32_t* out, uint64_t count, const uint32_t* keys, uint64_t block, uint64_t ordinal) {
  for (; count >= 4; count -= 4, out += 4) {
    const Block c = philox_block(keys, block++, ordinal);
    for (int i = 0; i < 4; ++i) out[i] = c.words[i];
  }
  if (count == 0) return;
  const Block c = philox_block(keys, block, ordinal);
  for (uint64_t i = 0; i < count; ++i) out[i] = c.words[i];
}

}  // namespace lockstep::detail
