#pragma once

#include "lockstep/base/files.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <set>
#include <string>

/// Model folders, read and damaged without libtorch.
namespace lockstep::cli {

using Json = nlohmann::ordered_json;

/// A safetensors file taken apart.
struct RawSafetensors {
  Json header;
  std::string data;
};
RawSafetensors read_raw(const fs::path& file);
/// `claimed_length`: what the file says about its header, when it should lie.
void write_raw(const fs::path& file, const RawSafetensors& content, uint64_t claimed_length = 0);
void change_raw(const fs::path& file, const std::function<void(RawSafetensors&)>& change);

/// Names of the tensors.
std::set<std::string> tensor_names(const fs::path& file);
/// The one dtype of all tensors ("F32"), or "mixed".
std::string dtype_of(const fs::path& file);

Json read_json(const fs::path& file);
void change_json(const fs::path& file, const std::function<void(Json&)>& change);

/// Stores every tensor as float16, the first element of `poisoned` as infinity.
void convert_to_float16(const fs::path& file, const std::string& poisoned);

}  // namespace lockstep::cli
