#include "lockstep/checkpoint/model_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/checkpoint/weight_files.h"

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
std::string config_text(const ModelFolderOptions& options) {
  Json config = Json::parse(read_file(options.source / "config.json"));
  if (!options.config_changes.empty()) {
    const Json changes = Json::parse(options.config_changes);
    for (const auto& [name, value] : changes.items()) config[name] = value;
  }
  const char* key = config.contains("torch_dtype") && !config.contains("dtype") ? "torch_dtype" : "dtype";
  config[key] = dtype_name(options.dtype);
  return config.dump(2) + "\n";
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

std::vector<SmallFile> side_files(const ModelFolderOptions& options) {
  std::vector<SmallFile> files{{"config.json", config_text(options)}};
  for (const char* name : kCopied) {
    const fs::path from = options.source / name;
    if (!fs::exists(from)) continue;
    if (fs::is_directory(from)) {
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
        const std::string inside = entry.path().lexically_relative(options.source).string();
        if (entry.is_regular_file()) files.push_back({inside, read_file(entry.path())});
      }
    } else if (name != std::string_view("chat_template.jinja") || !options.chat_template) {
      files.push_back({name, read_file(from)});
    }
  }
  if (options.chat_template) files.push_back({"chat_template.jinja", *options.chat_template});
  return files;
}

void save_model_folder(const tensor::ParamLayout& layout, const std::function<at::Tensor(tensor::ParamId)>& gather,
                       bool writes, const ModelFolderOptions& options) {
  if (writes) {
    write_file_atomically(options.folder / "config.json", config_text(options));
    copy_side_files(options);
  }
  const std::vector<FilePlan> shards = plan_weight_files(weight_plans(layout, options.dtype), options.max_shard_bytes);
  for (const FilePlan& shard : shards) {
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
  if (writes && shards.size() > 1) write_file_atomically(options.folder / kIndexFile, weight_index(shards));
}

}  // namespace lockstep::checkpoint
