#pragma once

#include "lockstep/base/files.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

struct TensorPlan {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  int64_t num_bytes() const;
};

/// The order of huggingface/safetensors inside a file: dtypes by descending rank, then names.
void sort_for_file(std::vector<TensorPlan>& plans);

/// Writes a safetensors file one tensor at a time, in the order of `plans`. The file appears with commit().
class SafetensorsStream {
 public:
  SafetensorsStream(const std::filesystem::path& path, std::vector<TensorPlan> plans,
                    const std::map<std::string, std::string>& metadata);
  /// The next tensor; converted to the planned dtype (round to nearest even).
  void append(const at::Tensor& tensor);
  void commit();

 private:
  AtomicFile file_;
  std::vector<TensorPlan> plans_;
  size_t next_ = 0;
};

}  // namespace lockstep::checkpoint
