#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lockstep {

/// Sum of doubles without rounding, so that order and grouping do not matter: a fixed-point number wide enough for
/// every finite double, held in 64-bit limbs of which the upper half takes carries (the long accumulator of
/// Kulisch; compare Neal, "Fast exact summation using small and large superaccumulators", 2015).
/// The limbs may be added over processes as int64 integers. An exact zero is +0. Not thread-safe.
class ExactSum {
 public:
  static constexpr int kLimbs = 70;  ///< 32 value bits per limb

  void add(double value);
  void merge(const ExactSum& other);
  /// Nearest double of the exact sum. NaN or infinity if one was added (as IEEE addition would give).
  double value() const;

  /// The state as integers, carries resolved: the sum of several sums is the element-wise int64 sum of their words, of
  /// at most 2^20 exported states. The same exact sum always has the same words.
  static constexpr int kWords = kLimbs + 3;  ///< limbs, number of NaN, +inf, -inf
  std::array<int64_t, kWords> words() const;
  /// `words` has kWords entries.
  static ExactSum from_words(std::span<const int64_t> words);

 private:
  /// Brings every limb but the highest into [0, 2^32).
  void normalise();
  std::array<int64_t, kLimbs> limbs_{};
  int64_t num_nan_ = 0;
  int64_t num_positive_infinite_ = 0;
  int64_t num_negative_infinite_ = 0;
  uint32_t adds_since_normalise_ = 0;
};

}  // namespace lockstep
