#include "lockstep/checkpoint/model_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/checkpoint/safetensors_stream.h"

#include <ATen/ops/isfinite.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

/// Files of a model folder that training does not change.
constexpr const char* kCopied[] = {
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "chat_template.jinja",
    "chat_template.json", "additional_chat_templates",
};

void copy_side_files(const ModelFolderOptions& options) {
  for (const char* name : kCopied) {
    const fs::path from = options.source / name;
    if (!fs::exists(from)) continue;
    fs::copy(from, options.folder / name, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  if (options.chat_template) write_file_atomically(options.folder / "chat_template.jinja", *options.chat_template);
}

/// config.json with the dtype of the saved weights, in the spelling that the source uses.
void write_config(const ModelFolderOptions& options) {
  Json config = Json::parse(read_file(options.source / "config.json"));
  const char* key = config.contains("torch_dtype") && !config.contains("dtype") ? "torch_dtype" : "dtype";
  config[key] = dtype_name(options.dtype);
  write_file_atomically(options.folder / "config.json", config.dump(2) + "\n");
}

struct ShardPlan {
  std::string file;
  std::vector<TensorPlan> tensors;
};

/// Consecutive parameters share a shard until it is full; a tensor larger than a shard is one alone.
std::vector<ShardPlan> plan_shards(const tensor::ParamLayout& layout, const ModelFolderOptions& options) {
  std::vector<ShardPlan> shards(1);
  int64_t bytes = 0;
  for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
    TensorPlan plan{layout.spec(id).name, options.dtype, layout.spec(id).shape};
    if (!shards.back().tensors.empty() && bytes + plan.num_bytes() > options.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += plan.num_bytes();
    shards.back().tensors.push_back(std::move(plan));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    sort_for_file(shards[i].tensors);
  }
  return shards;
}

void write_index(const std::vector<ShardPlan>& shards, const fs::path& folder) {
  int64_t total = 0;
  std::map<std::string, std::string> map;
  for (const ShardPlan& shard : shards) {
    for (const TensorPlan& plan : shard.tensors) {
      total += plan.num_bytes();
      map[plan.name] = shard.file;
    }
  }
  Json index;
  index["metadata"]["total_size"] = total;
  index["weight_map"] = map;
  write_file_atomically(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

/// A model with NaN or infinity in it must not look like a result.
void require_finite(const at::Tensor& stored, const at::Tensor& whole, const TensorPlan& plan) {
  if (at::isfinite(stored).all().item<bool>()) return;
  if (at::isfinite(whole).all().item<bool>()) {
    throw Error::non_finite("{} holds values beyond the range of {}, so the model is not saved. Use --dtype float32.",
                            plan.name, dtype_name(plan.dtype));
  }
  throw Error::non_finite("after the last update {} holds NaN or infinite values, so the model is not saved. Lower "
                          "--learning_rate.",
                          plan.name);
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return "bfloat16";
  if (dtype == at::kHalf) return "float16";
  LS_CHECK(dtype == at::kFloat, "a model is not saved in dtype {}", static_cast<int>(dtype));
  return "float32";
}

void save_model_folder(const tensor::ParamLayout& layout, const std::function<at::Tensor(tensor::ParamId)>& gather,
                       bool writes, const ModelFolderOptions& options) {
  if (writes) {
    write_config(options);
    copy_side_files(options);
  }
  const std::vector<ShardPlan> shards = plan_shards(layout, options);
  for (const ShardPlan& shard : shards) {
    std::unique_ptr<SafetensorsStream> stream;
    if (writes) {
      stream = std::make_unique<SafetensorsStream>(options.folder / shard.file, shard.tensors,
                                                   std::map<std::string, std::string>{{"format", "pt"}});
    }
    for (const TensorPlan& plan : shard.tensors) {
      const at::Tensor whole = gather(layout.find(plan.name));
      if (!stream) continue;
      const at::Tensor stored = whole.to(plan.dtype);
      require_finite(stored, whole, plan);
      stream->append(stored);
    }
    if (stream) stream->commit();
  }
  if (writes && shards.size() > 1) write_index(shards, options.folder);
}

}  // namespace lockstep::checkpoint
