#pragma once

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/tensor/safetensors.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// Reads a complete checkpoint for any number of ranks, whatever number wrote it. Files are mapped, so a rank touches the
/// parts it asks for. Calls from many threads are safe.
class CheckpointReader {
 public:
  /// Throws Error{Data} that names the file for what is missing, has another size or is damaged in its structure. Content is
  /// not hashed: see problems_of(Verify::Content).
  explicit CheckpointReader(const fs::path& checkpoint);

  const fs::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  /// Names of the optimizer's states, kMaster not among them; ascending. Empty when saved without them.
  std::vector<std::string> state_names() const;
  /// Elements of the logical tensor, or nothing when the checkpoint lacks it.
  std::optional<int64_t> numel(const std::string& param, const std::string& state) const;

  /// Elements [begin, begin + out.size()) of `param`'s `state` (kMaster: the float32 weights), bit for bit as they were when
  /// saved. Throws Error{Data} that says which part of which rank lacks it, or that the checkpoint was saved without
  /// optimizer state, or that its weights were stored in another dtype than float32 and nothing else.
  void read(const std::string& param, const std::string& state, int64_t begin, std::span<float> out) const;

  /// The weights of `param`: its masters if they are there, else what the model's file holds of them, widened. For a model that
  /// is saved or used, not trained further. Throws as read() does.
  void read_weights(const std::string& param, int64_t begin, std::span<float> out) const;

  /// A small file such as run.json. Throws Error{Data} when absent.
  std::string text(const std::string& name) const;

 private:
  struct Stretch {
    int64_t begin = 0, end = 0;
    at::Tensor values;   ///< of the mapped file
  };
  struct Logical {
    int64_t numel = 0;
    std::vector<Stretch> stretches;  ///< ascending, without overlap
  };

  void add_weights();
  void add_part(int rank);
  const Logical& find(const std::string& param, const std::string& state) const;

  fs::path path_;
  Manifest manifest_;
  std::optional<tensor::WeightFiles> weights_;
  std::vector<tensor::SafetensorsFile> parts_;
  std::map<std::string, Logical> logical_;  ///< "<param>.<state>"
};

}  // namespace lockstep::checkpoint
