#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// Exact sums of gradients (DESIGN part 1): a contribution c is rounded once to the integer nearest to c * 2^s
/// (ties to even) and added as int64. Integer addition is associative, so order, grouping, thread, process and
/// machine do not matter. The three paths (AVX-512, AVX2, plain C++) give the same bits.
namespace lockstep::tensor {

/// Set bits say what went wrong with at least one contribution; the sum is then not to be used.
struct ExactFlags {
  bool range = false;       ///< |c| * 2^s reached the limit: do the update again with a smaller s
  bool non_finite = false;  ///< NaN or infinity
  bool any() const { return range || non_finite; }
  ExactFlags& operator|=(const ExactFlags& other) {
    range |= other.range;
    non_finite |= other.non_finite;
    return *this;
  }
};

inline constexpr int kDefaultScaleBits = 48;

/// |c| * 2^s must stay below this, so that no partial sum of `num_contributions` can wrap:
/// the largest power of two that is at most 2^62 / num_contributions. 1 <= num_contributions <= 2^62.
double exact_limit(int64_t num_contributions);

enum class ExactPath { Avx512, Avx2, Plain };
/// The fastest one this processor has.
ExactPath best_exact_path();

/// acc[i] += round(values[i] * 2^scale_bits). Elements that trip a flag add nothing. 0 <= scale_bits <= 62,
/// 1 <= limit <= 2^62.
ExactFlags exact_add(std::span<int64_t> acc, std::span<const float> values, int scale_bits, double limit,
                     ExactPath path = best_exact_path());
/// bfloat16 bit patterns; a shorter read, the same meaning.
ExactFlags exact_add_bf16(std::span<int64_t> acc, std::span<const uint16_t> values, int scale_bits, double limit,
                          ExactPath path = best_exact_path());

/// acc[i] = round(values[i] * 2^scale_bits), 0 for elements that trip a flag: what exact_add gives on zeros, without
/// reading acc. Meant for sums that are not read again soon.
ExactFlags exact_set(std::span<int64_t> acc, std::span<const float> values, int scale_bits, double limit,
                     ExactPath path = best_exact_path());
ExactFlags exact_set_bf16(std::span<int64_t> acc, std::span<const uint16_t> values, int scale_bits, double limit,
                          ExactPath path = best_exact_path());

/// float64, for tests of models in double: the same meaning, plain C++, under the default rounding mode.
ExactFlags exact_add_double(std::span<int64_t> acc, std::span<const double> values, int scale_bits, double limit);

/// out[i] = float(acc[i] * 2^-scale_bits), through double.
void exact_to_float(std::span<float> out, std::span<const int64_t> acc, int scale_bits,
                    ExactPath path = best_exact_path());

}  // namespace lockstep::tensor
