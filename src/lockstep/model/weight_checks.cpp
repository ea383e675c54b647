#include "lockstep/model/weight_checks.h"

#include "lockstep/base/error.h"

#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::model::detail {

using tensor::WeightFiles;

namespace {

/// A number is NaN or infinite exactly when every bit of its exponent is set. The inner loop has a fixed length so
/// that it becomes vector code.
template <class Bits>
bool all_finite(const void* data, int64_t count, Bits exponent) {
  constexpr int64_t kBlock = 1024;
  const auto* values = static_cast<const Bits*>(data);
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    Bits bad = 0;
    for (int64_t j = 0; j < kBlock; ++j) bad |= static_cast<Bits>((values[i + j] & exponent) == exponent);
    if (bad) return false;
  }
  for (; i < count; ++i)
    if ((values[i] & exponent) == exponent) return false;
  return true;
}

}  // namespace

std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  const auto end = names.begin() + static_cast<long>(std::min(kShown, names.size()));
  const std::string list = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  return names.size() > kShown ? fmt::format("{} and {} more", list, names.size() - kShown) : list;
}

void check_form(const tensor::ParamSpec& spec, const WeightFiles& files, const std::string& name,
                const at::Tensor& stored) {
  if (stored.sizes() != at::IntArrayRef(spec.shape))
    throw Error::data("{}: {} has shape [{}], config.json makes it [{}]. Correct config.json or the weights.",
                      files.file_of(name), name, fmt::join(stored.sizes(), ", "),
                      fmt::join(spec.shape, ", "));
  const at::ScalarType dtype = stored.scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)
    throw Error::data("{}: {} is stored as {}; there are float32, bfloat16 and float16. Convert the weights.",
                      files.file_of(name), name, c10::toString(dtype));
}

void check_finite(const WeightFiles& files, const std::string& name, const at::Tensor& stored) {
  const void* data = stored.const_data_ptr();
  const bool finite = stored.scalar_type() == at::kFloat      ? all_finite<uint32_t>(data, stored.numel(), 0x7f800000)
                      : stored.scalar_type() == at::kBFloat16 ? all_finite<uint16_t>(data, stored.numel(), 0x7f80)
                                                              : all_finite<uint16_t>(data, stored.numel(), 0x7c00);
  if (!finite)
    throw Error::data("{}: {} holds NaN or infinite values. Such a model cannot be trained; "
                      "take an earlier checkpoint.",
                      files.file_of(name), name);
}

at::ScalarType common_dtype(std::optional<at::ScalarType> so_far, at::ScalarType next) {
  return !so_far || *so_far == next ? next : at::kFloat;
}

}  // namespace lockstep::model::detail
