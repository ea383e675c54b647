#include "lockstep/model/weights.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/model/weight_checks.h"

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
                      files.folder().string(), missing.size(), layout.num_params(), detail::first_few(missing));

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
                      unexpected.size(), detail::first_few(unexpected));
}

}  // namespace

at::ScalarType load_weights(const ParamLayout& layout, const WeightFiles& files, bool tied_head,
                            const std::function<void(ParamId, const at::Tensor&)>& read, ThreadTeam* team) {
  check_names(layout, files, tied_head);
  std::optional<at::ScalarType> dtype;
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const at::Tensor stored = files.tensor(layout.spec(id).name);
    detail::check_form(layout.spec(id), files, layout.spec(id).name, stored);
    dtype = detail::common_dtype(dtype, stored.scalar_type());
  }
  const auto read_one = [&](size_t item, int) {
    const auto id = static_cast<ParamId>(item);
    const std::string& name = layout.spec(id).name;
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
