#pragma once

#include "lockstep/base/files.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";

/// A file of a checkpoint. Of a safetensors file `hash` is the sum modulo 2^64 of XXH64(piece, 1 + offset of the piece in the
/// file) over its head and every 4,096 elements of each of its tensors; of others it is XXH64 of the content. So whoever
/// writes a part of a file hashes what it writes, and the sum does not tell how many did.
struct ManifestFile {
  std::string name;      ///< relative to the checkpoint, parts by '/'
  int64_t bytes = 0;
  uint64_t hash = 0;
  bool operator==(const ManifestFile&) const = default;
};

/// What a checkpoint consists of; written last.
struct Manifest {
  int64_t update = 0;            ///< updates done
  int world_size = 1;            ///< ranks that wrote it
  std::string weights_dtype;     ///< of the model's files: "float32", "bfloat16", "float16"
  bool optimizer = true;         ///< false: saved without the optimizer's state (--save_only_model)
  std::vector<ManifestFile> files;  ///< ascending by name
  /// nullptr when absent.
  const ManifestFile* find(std::string_view name) const;
};

std::string format_manifest(const Manifest& manifest);
/// Throws Error{Data}; `where` is the file, for messages.
Manifest parse_manifest(const std::string& text, const std::string& where);

/// "optimizer/part-R-of-W.safetensors"
std::string part_file(int rank, int world_size);

/// What one rank says of its share of a save.
struct RankReport {
  int rank = 0;
  std::string error;             ///< empty: all is on disk
  std::string error_kind;        ///< name of its ErrorKind
  std::vector<ManifestFile> files;  ///< bytes and hash of what this rank wrote of them
};

std::string format_report(const RankReport& report);
RankReport parse_report(const std::string& text);

/// The ranks' shares added up by file, ascending by name.
std::vector<ManifestFile> merge_reports(std::span<const RankReport> reports);

}  // namespace lockstep::checkpoint
