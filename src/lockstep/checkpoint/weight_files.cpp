#include "lockstep/checkpoint/weight_files.h"

#include "lockstep/tensor/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <cstring>

namespace lockstep::checkpoint {

FilePlan plan_file(std::string file, std::vector<TensorPlan> tensors,
                   const std::map<std::string, std::string>& metadata) {
  sort_for_file(tensors);
  std::vector<tensor::detail::HeaderLine> lines;
  for (const TensorPlan& plan : tensors) {
    lines.push_back({plan.name, plan.dtype, plan.shape, static_cast<size_t>(plan.num_bytes())});
  }
  const std::string header = tensor::detail::format_safetensors_header(lines, metadata);
  const uint64_t length = header.size();
  FilePlan plan{.file = std::move(file), .head = std::string(sizeof length, '\0') + header, .tensors = {}, .offsets = {}};
  std::memcpy(plan.head.data(), &length, sizeof length);
  plan.num_bytes = static_cast<int64_t>(plan.head.size());
  for (const TensorPlan& one : tensors) {
    plan.offsets.push_back(plan.num_bytes);
    plan.num_bytes += one.num_bytes();
  }
  plan.tensors = std::move(tensors);
  return plan;
}

std::vector<TensorPlan> weight_plans(const tensor::ParamLayout& layout, at::ScalarType dtype) {
  std::vector<TensorPlan> plans;
  for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
    plans.push_back({layout.spec(id).name, dtype, layout.spec(id).shape});
  }
  return plans;
}

std::vector<FilePlan> plan_weight_files(const std::vector<TensorPlan>& tensors, int64_t max_shard_bytes) {
  std::vector<std::vector<TensorPlan>> shards(1);
  int64_t bytes = 0;
  for (const TensorPlan& plan : tensors) {
    if (!shards.back().empty() && bytes + plan.num_bytes() > max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += plan.num_bytes();
    shards.back().push_back(plan);
  }
  std::vector<FilePlan> files;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1 ? "model.safetensors"
                                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    files.push_back(plan_file(std::move(name), std::move(shards[i]), {{"format", "pt"}}));
  }
  return files;
}

std::string weight_index(const std::vector<FilePlan>& files) {
  int64_t total = 0;
  std::map<std::string, std::string> map;
  for (const FilePlan& file : files) {
    for (const TensorPlan& plan : file.tensors) {
      total += plan.num_bytes();
      map[plan.name] = file.file;
    }
  }
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  index["weight_map"] = map;
  return index.dump(2) + "\n";
}

}  // namespace lockstep::checkpoint
