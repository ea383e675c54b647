#pragma once

#include "lockstep/tensor/safetensors.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// The JSON part of a safetensors file, read and written; no files here.
namespace lockstep::tensor::detail {

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// `where` is the file, for messages; `data_bytes` is what follows the header. Throws Error{Data}.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::size_t data_bytes, const std::string& where);

/// weight_map of a model.safetensors.index.json: tensor -> file name. Throws Error{Data}.
std::map<std::string, std::string> parse_weight_map(std::string_view json, const std::string& where);

struct HeaderLine {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::size_t bytes = 0;
};

/// Where huggingface/safetensors puts a dtype in the file: by descending rank, then by name.
int dtype_rank(at::ScalarType dtype);

/// The header of tensors that lie in this order, padded with spaces to a multiple of 8 bytes.
std::string format_safetensors_header(const std::vector<HeaderLine>& lines,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace lockstep::tensor::detail
