#pragma once

#include "lockstep/base/files.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

/// The safetensors format: 8 bytes little-endian header length, JSON header, data. Everything in the header is
/// checked before use (length cap 100 MB, bounds, overlap, holes, shape times size, duplicate names, known dtypes).
namespace lockstep::tensor {

struct SafetensorsEntry {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::size_t begin = 0, end = 0;  ///< bytes from the start of the data section
};

/// One mapped file. Tensors are views of the map (copies where the data lies unaligned), valid while the file object
/// lives; do not write to them. Reads from many threads are safe.
class SafetensorsFile {
 public:
  /// Throws Error{Data} naming the file, the tensor and the values that do not fit.
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  at::Tensor tensor(const std::string& name) const;

 private:
  MappedFile file_;
  std::size_t data_offset_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A model folder's weights: model.safetensors, or model.safetensors.index.json with its shards. Checks that every
/// tensor of the index is in its shard and that no shard is missing. Tensors of the shards that the index leaves out
/// are there too, as in transformers.
class WeightFiles {
 public:
  /// Throws Error{Data}.
  static WeightFiles open(const std::filesystem::path& folder);
  /// In ascending order.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  at::Tensor tensor(const std::string& name) const;
  const std::filesystem::path& folder() const { return folder_; }
  /// Path of the file that holds the tensor, for messages.
  std::string file_of(const std::string& name) const;

 private:
  void open_shards(const std::filesystem::path& folder, const std::filesystem::path& index);
  /// Position in files_. Throws Error{Data} for an unknown name.
  std::size_t number_of(const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<std::shared_ptr<SafetensorsFile>> files_;
  std::vector<std::string> file_names_;
  std::map<std::string, std::size_t> file_of_;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  ///< CPU, contiguous
};

/// Writes `path` whole or not at all (base/files.h). The same bytes as huggingface/safetensors: dtypes in descending
/// order of its enum (I64, F64, F32, I32, BF16, F16, I16, I8, U8, BOOL), within one the names in ascending order,
/// header padded with spaces to 8 bytes. The bytes depend on the arguments alone, not on the order of `tensors`.
void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace lockstep::tensor
