#pragma once

#include "lockstep/checkpoint/safetensors_stream.h"
#include "lockstep/tensor/param_layout.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// transformers' limit; a model beyond it is cut into several files with an index.
inline constexpr int64_t kMaxShardBytes = 50'000'000'000;

/// A safetensors file before it exists. A pure function of names, shapes, dtypes and metadata, so whoever holds a part
/// of a tensor knows where it goes.
struct FilePlan {
  std::string file;
  std::string head;                  ///< 8 bytes of length and the header: what lies before the first tensor
  std::vector<TensorPlan> tensors;   ///< in the order of the file
  std::vector<int64_t> offsets;      ///< of each tensor, in bytes from the start of the file
  int64_t num_bytes = 0;
};

/// `tensors` in any order.
FilePlan plan_file(std::string file, std::vector<TensorPlan> tensors, const std::map<std::string, std::string>& metadata);

/// The parameters as they are stored, in the order they are declared.
std::vector<TensorPlan> weight_plans(const tensor::ParamLayout& layout, at::ScalarType dtype);

/// model.safetensors, or model-0000I-of-0000N.safetensors: consecutive tensors share a file until it is full; a tensor
/// larger than a file is one alone.
std::vector<FilePlan> plan_weight_files(const std::vector<TensorPlan>& tensors, int64_t max_shard_bytes = kMaxShardBytes);

inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Content of kIndexFile.
std::string weight_index(const std::vector<FilePlan>& files);

}  // namespace lockstep::checkpoint
