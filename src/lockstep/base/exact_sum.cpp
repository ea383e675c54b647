#include "lockstep/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Limb i counts units of 2^(32 i - 1074), and 2^-1074 is the smallest denormal: every finite double is an integer
// in units of limb 0.
constexpr int kLimbBits = 32;
constexpr int kLowestExponent = -1074;
constexpr uint64_t kLimbMask = (uint64_t{1} << kLimbBits) - 1;
constexpr int kMantissaBits = 53;

// One add changes a limb by less than 2^32, so 2^30 of them stay below 2^62.
constexpr uint32_t kAddsBeforeNormalise = uint32_t{1} << 30;

using Limbs = std::array<int64_t, ExactSum::kLimbs>;

void resolve_carries(Limbs& limbs) {
  int64_t carry = 0;
  for (size_t i = 0; i + 1 < limbs.size(); ++i) {
    const int64_t limb = limbs[i] + carry;
    carry = limb >> kLimbBits;  // rounds down, so what stays is in [0, 2^32)
    limbs[i] = limb & static_cast<int64_t>(kLimbMask);
  }
  limbs.back() += carry;
}

/// Position of the highest set bit of non-negative limbs with carries resolved, -1 for zero.
int highest_bit(const Limbs& limbs) {
  for (int i = ExactSum::kLimbs - 1; i >= 0; --i) {
    const auto limb = static_cast<uint64_t>(limbs[static_cast<size_t>(i)]);
    if (limb != 0) return i * kLimbBits + static_cast<int>(std::bit_width(limb)) - 1;
  }
  return -1;
}

bool bit_at(const Limbs& limbs, int position) {
  // Only the highest limb is wider than kLimbBits.
  const int limb = std::min(position / kLimbBits, ExactSum::kLimbs - 1);
  return (static_cast<uint64_t>(limbs[static_cast<size_t>(limb)]) >> (position - limb * kLimbBits) & 1) != 0;
}

bool any_bit_below(const Limbs& limbs, int position) {
  for (int bit = position - 1; bit >= 0; --bit) {
    if (bit % kLimbBits == kLimbBits - 1 && bit / kLimbBits < ExactSum::kLimbs - 1) {
      // Whole limbs from here on.
      return std::any_of(limbs.begin(), limbs.begin() + bit / kLimbBits + 1, [](int64_t limb) { return limb != 0; });
    }
    if (bit_at(limbs, bit)) return true;
  }
  return false;
}

/// Nearest double, ties to even, of non-negative limbs with carries resolved.
double round_to_double(const Limbs& limbs) {
  const int top = highest_bit(limbs);
  const int lowest_kept = std::max(0, top - (kMantissaBits - 1));
  uint64_t mantissa = 0;
  for (int bit = top; bit >= lowest_kept; --bit) mantissa = mantissa << 1 | (bit_at(limbs, bit) ? 1 : 0);
  if (lowest_kept > 0 && bit_at(limbs, lowest_kept - 1)) {
    const bool above_half = any_bit_below(limbs, lowest_kept - 1);
    if (above_half || (mantissa & 1) != 0) ++mantissa;
  }
  // Exact: a result below the normal range has lowest_kept = 0, and one above the finite range becomes infinite.
  return std::ldexp(static_cast<double>(mantissa), lowest_kept + kLowestExponent);
}

}  // namespace

void ExactSum::add(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto biased_exponent = static_cast<int>(bits >> 52 & 0x7FF);
  const bool negative = (bits >> 63) != 0;
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (biased_exponent == 0x7FF) {
    if (mantissa != 0) {
      ++num_nan_;
    } else {
      ++(negative ? num_negative_infinite_ : num_positive_infinite_);
    }
    return;
  }
  if (biased_exponent != 0) mantissa |= uint64_t{1} << 52;
  const int shift = std::max(biased_exponent, 1) - 1;  // value = mantissa * 2^(shift - 1074)
  const auto first = static_cast<size_t>(shift / kLimbBits);
  const int inside = shift % kLimbBits;
  const uint64_t low = (mantissa & kLimbMask) << inside;
  const uint64_t high = (mantissa >> kLimbBits << inside) + (low >> kLimbBits);
  const int64_t sign = negative ? -1 : 1;
  limbs_[first] += sign * static_cast<int64_t>(low & kLimbMask);
  limbs_[first + 1] += sign * static_cast<int64_t>(high & kLimbMask);
  limbs_[first + 2] += sign * static_cast<int64_t>(high >> kLimbBits);
  if (++adds_since_normalise_ >= kAddsBeforeNormalise) normalise();
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum addend = other;
  addend.normalise();
  normalise();
  for (size_t i = 0; i < limbs_.size(); ++i) limbs_[i] += addend.limbs_[i];
  num_nan_ += addend.num_nan_;
  num_positive_infinite_ += addend.num_positive_infinite_;
  num_negative_infinite_ += addend.num_negative_infinite_;
  adds_since_normalise_ = 1;
}

double ExactSum::value() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (num_nan_ > 0 || (num_positive_infinite_ > 0 && num_negative_infinite_ > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (num_positive_infinite_ > 0) return kInfinity;
  if (num_negative_infinite_ > 0) return -kInfinity;
  Limbs limbs = limbs_;
  resolve_carries(limbs);
  const bool negative = limbs.back() < 0;
  if (negative) {
    for (int64_t& limb : limbs) limb = -limb;
    resolve_carries(limbs);
  }
  const double magnitude = round_to_double(limbs);
  return negative ? -magnitude : magnitude;
}

std::array<int64_t, ExactSum::kWords> ExactSum::words() const {
  Limbs limbs = limbs_;
  resolve_carries(limbs);
  std::array<int64_t, kWords> words{};
  std::copy(limbs.begin(), limbs.end(), words.begin());
  words[kLimbs] = num_nan_;
  words[kLimbs + 1] = num_positive_infinite_;
  words[kLimbs + 2] = num_negative_infinite_;
  return words;
}

ExactSum ExactSum::from_words(std::span<const int64_t> words) {
  LS_CHECK(words.size() == kWords, "{} words instead of {}", words.size(), static_cast<int>(kWords));
  ExactSum sum;
  std::copy_n(words.begin(), static_cast<size_t>(kLimbs), sum.limbs_.begin());
  sum.num_nan_ = words[kLimbs];
  sum.num_positive_infinite_ = words[kLimbs + 1];
  sum.num_negative_infinite_ = words[kLimbs + 2];
  sum.normalise();
  return sum;
}

void ExactSum::normalise() {
  resolve_carries(limbs_);
  adds_since_normalise_ = 0;
}

}  // namespace lockstep
