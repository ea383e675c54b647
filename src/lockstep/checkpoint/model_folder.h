#pragma once

#include "lockstep/checkpoint/weight_files.h"
#include "lockstep/tensor/param_layout.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

struct ModelFolderOptions {
  std::filesystem::path source;        ///< the folder the model came from: config, tokenizer, generation config
  std::filesystem::path folder;        ///< exists; files are written here
  at::ScalarType dtype = at::kFloat;   ///< of the saved weights: float32, bfloat16 or float16
  std::optional<std::string> chat_template;  ///< written as chat_template.jinja when it is not the source's own
  int64_t max_shard_bytes = kMaxShardBytes;
  std::string config_changes = {};     ///< a JSON object: keys of config.json that this model has otherwise, or ""
};

/// Collective: `gather` (whole tensor in float32) is called on every rank, for every parameter in the same order;
/// `writes` is true on the one rank that touches the disk. Leaves config.json (its dtype key set), the weights under
/// their checkpoint names, and copies of the source's tokenizer and generation files. Throws Error{NonFinite} on the
/// writing rank if a weight is not finite, or not in the range of `dtype`.
void save_model_folder(const tensor::ParamLayout& layout, const std::function<at::Tensor(tensor::ParamId)>& gather,
                       bool writes, const ModelFolderOptions& options);

/// A file of a checkpoint that is no tensor.
struct SmallFile {
  std::string name;     ///< relative to the folder, parts by '/'
  std::string content;
};

/// What save_model_folder() leaves beside the weights, in memory: config.json first. `options.folder` is not used.
std::vector<SmallFile> side_files(const ModelFolderOptions& options);

/// "float32", "bfloat16", "float16".
std::string dtype_name(at::ScalarType dtype);

}  // namespace lockstep::checkpoint
