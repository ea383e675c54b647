#include "lockstep/tensor/round.h"

#include "lockstep/base/error.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace lockstep::tensor {
namespace {

/// Every pattern of the upper half, with the lower halves around a tie: normal, denormal, infinite, NaN.
std::vector<float> patterns() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper <= 0xFFFF; ++upper) {
    for (const uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return values;
}

std::vector<ExactPath> paths_here() {
  std::vector<ExactPath> paths{ExactPath::Plain};
  if (best_exact_path() != ExactPath::Plain) paths.push_back(ExactPath::Avx2);
  if (best_exact_path() == ExactPath::Avx512) paths.push_back(ExactPath::Avx512);
  return paths;
}

TEST(RoundToBf16, GivesTheBitsOfBFloat16OnEveryPath) {
  const std::vector<float> values = patterns();
  for (const ExactPath path : paths_here()) {
    std::vector<uint16_t> out(values.size());
    round_to_bf16(out, values, path);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(out[i], at::BFloat16(values[i]).x) << std::hex << std::bit_cast<uint32_t>(values[i]);
    }
  }
}

TEST(RoundToBf16, RoundsAsCopyDoes) {
  std::vector<float> values = patterns();
  const at::Tensor copied = at::from_blob(values.data(), {std::ssize(values)}).to(at::kBFloat16);
  std::vector<uint16_t> out(values.size());
  round_to_bf16(out, values);
  const auto* want = static_cast<const uint16_t*>(copied.data_ptr());
  for (size_t i = 0; i < values.size(); ++i) {
    const bool both_nan = std::isnan(values[i]) && (out[i] & 0x7FFF) > 0x7F80 && (want[i] & 0x7FFF) > 0x7F80;
    ASSERT_TRUE(both_nan || out[i] == want[i]) << std::hex << std::bit_cast<uint32_t>(values[i]);
  }
}

TEST(RoundToBf16, TakesAnySizeAndPlace) {
  const std::vector<float> values(100, 1.00390625F + 0x1p-20F);  // just above the tie of 1 and the next
  for (const ExactPath path : paths_here()) {
    for (size_t count = 0; count <= 67; ++count) {
      for (const size_t begin : {0U, 1U, 5U}) {
        std::vector<uint16_t> out(100, 7);
        round_to_bf16(std::span(out).subspan(begin, count), std::span(values).subspan(begin + 1, count), path);
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], i >= begin && i < begin + count ? 0x3F81 : 7) << count << " from " << begin;
        }
      }
    }
  }
  std::vector<uint16_t> three(3);
  EXPECT_THROW(round_to_bf16(three, values), Error);
}

}  // namespace
}  // namespace lockstep::tensor
