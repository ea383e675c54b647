#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// int64 sums as they travel between hosts: per tile of 1,024 values only the bits that its largest needs. Lossless for any
/// values; exact sums of gradients need 34 to 41 of 64. Pure functions; thread-safe.
namespace lockstep::comm {

inline constexpr size_t kTileValues = 1024;

/// Most words that `count` values take: every tile 64 bits per value, and a word for its width.
constexpr size_t packed_words_at_most(size_t count) { return (count + kTileValues - 1) / kTileValues * (kTileValues + 1); }

/// Returns the words written to `packed`, which has room for packed_words_at_most(values.size()).
size_t pack_sums(std::span<const int64_t> values, std::span<uint64_t> packed);

/// sums += the values that pack_sums() took. False, with some of it added, when `packed` is not what it wrote for as many.
bool add_packed_sums(std::span<const uint64_t> packed, std::span<int64_t> sums);

}  // namespace lockstep::comm
