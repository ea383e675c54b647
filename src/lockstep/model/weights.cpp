#include "lockstep/model/weights.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/model/weight_checks.h"

#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {
namespace {

using tensor::ParamId;
using tensor::ParamLayout;
using tensor::WeightFiles;

constexpr const char* kHead = "lm_head.weight";

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// The name that the file has for it: some checkpoints (openai-community/gpt2) leave out the base model's prefix.
std::string stored_as(const std::string& name, const WeightFiles& files) {
  constexpr std::string_view kPrefix = "transformer.";
  if (!name.starts_with(kPrefix) || files.contains(name)) return name;
  return name.substr(kPrefix.size());
}

/// Buffers that older checkpoints hold beside the weights.
bool follows_from_the_model(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

void check_names(const ParamLayout& layout, const WeightFiles& files, bool tied_head) {
  const std::string embedding = stored_as(layout.spec(0).name, files);
  std::vector<std::string> missing;
  std::set<std::string> wanted;
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const std::string& name = layout.spec(id).name;
    if (!files.contains(*wanted.insert(stored_as(name, files)).first)) missing.push_back(name);
  }
  if (!missing.empty())
    throw Error::data("{} lacks {} of {} tensors: {}. It must hold the whole model that config.json describes; fetch it "
                      "again.",
                      files.folder().string(), missing.size(), layout.num_params(), detail::first_few(missing));

  std::vector<std::string> unexpected;
  for (const std::string& name : files.names()) {
    if (wanted.contains(name)) continue;
    if (follows_from_the_model(name)) {
      log::info("model", "{}: {} is ignored: it follows from config.json", files.file_of(name), name);
    } else if (tied_head && name == kHead) {
      if (!same_bytes(files.tensor(name), files.tensor(embedding)))
        throw Error::data("{}: {} differs from {}, but config.json says tie_word_embeddings = true. Set it to false to "
                          "train a head of its own, or remove the tensor.",
                          files.file_of(name), kHead, embedding);
      log::info("model", "{}: {} is ignored: it is tied to {}", files.file_of(name), name, embedding);
    } else {
      unexpected.push_back(fmt::format("{} ({})", name, files.file_of(name)));
    }
  }
  if (!unexpected.empty())
    throw Error::data("the model folder holds {} tensors that the model of config.json does not have: {}. Correct "
                      "config.json or the weights.",
                      unexpected.size(), detail::first_few(unexpected));
}

}  // namespace

at::ScalarType load_weights(const ParamLayout& layout, const WeightFiles& files, bool tied_head,
                            const std::function<void(ParamId, const at::Tensor&)>& read, ThreadTeam* team) {
  check_names(layout, files, tied_head);
  std::optional<at::ScalarType> dtype;
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const std::string name = stored_as(layout.spec(id).name, files);
    const at::Tensor stored = files.tensor(name);
    detail::check_form(layout.spec(id), files, name, stored);
    dtype = detail::common_dtype(dtype, stored.scalar_type());
  }
  const auto read_one = [&](size_t item, int) {
    const auto id = static_cast<ParamId>(item);
    const std::string name = stored_as(layout.spec(id).name, files);
    const at::Tensor stored = files.tensor(name);
    detail::check_finite(files, name, stored);
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
