#include "lockstep/model/weights.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::model {
namespace {

using tensor::ParamId;
using tensor::ParamLayout;
using tensor::WeightFiles;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  const auto end = names.begin() + static_cast<long>(std::min(kShown, names.size()));
  const std::string list = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  return names.size() > kShown ? fmt::format("{} and {} more", list, names.size() - kShown) : list;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void check_names(const ParamLayout& layout, const WeightFiles& files, bool tied_head) {
  std::vector<std::string> missing;
  for (ParamId id = 0; id < layout.num_params(); ++id)
    if (!files.contains(layout.spec(id).name)) missing.push_back(layout.spec(id).name);
  if (!missing.empty())
    throw Error::data("{} lacks {} of {} tensors: {}. It must hold the whole model that config.json describes; fetch it "
                      "again.",
                      files.folder().string(), missing.size(), layout.num_params(), first_few(missing));

  std::vector<std::string> unexpected;
  for (const std::string& name : files.names()) {
    if (layout.find(name) >= 0) continue;
    if (name.ends_with(".rotary_emb.inv_freq")) {
      log::info("model", "{}: {} is ignored: it follows from config.json", files.file_of(name), name);
    } else if (tied_head && name == kHead) {
      if (!same_bytes(files.tensor(name), files.tensor(kEmbedding)))
        throw Error::data("{}: {} differs from {}, but config.json says tie_word_embeddings = true. Set it to false to "
                          "train a head of its own, or remove the tensor.",
                          files.file_of(name), kHead, kEmbedding);
      log::info("model", "{}: {} is ignored: it is tied to {}", files.file_of(name), name, kEmbedding);
    } else {
      unexpected.push_back(fmt::format("{} ({})", name, files.file_of(name)));
    }
  }
  if (!unexpected.empty())
    throw Error::data("the model folder holds {} tensors that the model of config.json does not have: {}. Correct "
                      "config.json or the weights.",
                      unexpected.size(), first_few(unexpected));
}

void check_form(const ParamLayout& layout, const WeightFiles& files, ParamId id, const at::Tensor& stored) {
  const tensor::ParamSpec& spec = layout.spec(id);
  if (stored.sizes() != at::IntArrayRef(spec.shape))
    throw Error::data("{}: {} has shape [{}], config.json makes it [{}]. Correct config.json or the weights.",
                      files.file_of(spec.name), spec.name, fmt::join(stored.sizes(), ", "),
                      fmt::join(spec.shape, ", "));
  const at::ScalarType dtype = stored.scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)
    throw Error::data("{}: {} is stored as {}; there are float32, bfloat16 and float16. Convert the weights.",
                      files.file_of(spec.name), spec.name, c10::toString(dtype));
}

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

}  // namespace

at::ScalarType load_weights(const ParamLayout& layout, const WeightFiles& files, bool tied_head,
                            const std::function<void(ParamId, const at::Tensor&)>& read, ThreadTeam* team) {
  check_names(layout, files, tied_head);
  std::optional<at::ScalarType> dtype;
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const at::Tensor stored = files.tensor(layout.spec(id).name);
    check_form(layout, files, id, stored);
    // float32 holds every value of both half types.
    dtype = !dtype || *dtype == stored.scalar_type() ? stored.scalar_type() : at::kFloat;
  }
  const auto read_one = [&](size_t item, int) {
    const auto id = static_cast<ParamId>(item);
    const std::string& name = layout.spec(id).name;
    const at::Tensor stored = files.tensor(name);
    check_finite(files, name, stored);
    read(id, stored);
  };
  const auto count = static_cast<size_t>(layout.num_params());
  if (team != nullptr) {
    team->run(count, read_one);
  } else {
    for (size_t item = 0; item < count; ++item) read_one(item, 0);
  }
  return dtype.value_or(at::kFloat);
}

}  // namespace lockstep::model
