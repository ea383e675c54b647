#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

/// What random numbers are for (values below 256); part of the key, so that two uses never share a stream.
enum class RandomPurpose : uint32_t { Dropout = 1, Initialisation = 2, Fingerprint = 3, Test = 4, Generation = 5 };

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A pure function:
/// the same (key, counter) gives the same four words on every machine.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

enum class PhiloxPath { Avx512, Avx2, Plain };
/// The fastest one this processor has; they all give the same words.
PhiloxPath best_philox_path();

/// A stream named by (seed, purpose, module, ordinal of the sample in the run's stream, segment). The position
/// inside the document is the counter, so any part can be drawn alone, in any order, by any process.
///
/// No two tuples of one run share a block of random words: the counter is position / 4 (64 bits) and ordinal
/// (64 bits); the key is bijection(purpose: 8 bits, module: 24 bits, segment: 32 bits) xor hash(seed), so under one
/// seed different uses have different keys. Between two seeds, keys of two uses agree by chance with 2^-64.
struct RandomStream {
  uint64_t seed = 0;
  RandomPurpose purpose = RandomPurpose::Test;
  uint32_t module = 0;   ///< e.g. the layer's index; below 2^24
  uint64_t ordinal = 0;  ///< samples consumed by the run before this one
  uint32_t segment = 0;  ///< e.g. the attention head

  /// The Philox key of all words: word `position` is word position % 4 of block position / 4, whose counter is that
  /// number and the ordinal, low halves first. For code that draws in vector registers.
  std::array<uint32_t, 2> key() const;
  /// Word `position` of the stream, uniform over 32 bits.
  uint32_t word(uint64_t position) const;
  /// Uniform in [0, 1) with 24 bits.
  float uniform(uint64_t position) const { return static_cast<float>(word(position) >> 8) * 0x1p-24F; }
  /// Fills out[i] = word(first + i); faster than word() one by one.
  void fill(uint32_t* out, uint64_t first, uint64_t count, PhiloxPath path = best_philox_path()) const;
};

}  // namespace lockstep
