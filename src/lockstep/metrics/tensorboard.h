#pragma once

#include "lockstep/base/files.h"

#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// TensorBoard's event files, written without protobuf: TFRecord framing around Event messages
/// (tensorboard/compat/proto/event.proto, summary.proto, tensor.proto).
namespace lockstep::metrics {

/// A key and a value as transformers' Trainer logs them, e.g. {"eval_loss", 0.5}.
using Scalar = std::pair<std::string, double>;

/// Hugging Face's tag of a logged key: eval_<rest> is eval/<rest>, test_<rest> is test/<rest>, all else train/<key>.
std::string scalar_tag(std::string_view key);

/// Where transformers 5.24 would write: `logging_dir` (TENSORBOARD_LOGGING_DIR) if it is given and not empty, else
/// <output_dir>/runs/<Mon DD_HH-MM-SS>_<host>, with English month names whatever the locale.
fs::path event_folder(const fs::path& output_dir, std::optional<std::string_view> logging_dir, const std::tm& local_time,
                      std::string_view host);
/// The same with this process's environment, time and host name.
fs::path event_folder_now(const fs::path& output_dir);

/// One TFRecord: length (uint64), its masked CRC-32C, the bytes, theirs; all little-endian.
std::string frame_record(std::string_view payload);

/// Event messages, not framed. wall_time: seconds since 1970. Values are stored as float32.
std::string encode_file_version(double wall_time);
/// Tells TensorBoard to drop what earlier files of the folder hold at `step` and later.
std::string encode_restart(double wall_time, int64_t step);
std::string encode_scalars(double wall_time, int64_t step, std::span<const Scalar> scalars);
/// An item of the text plugin, under the tag <name>/text_summary as torch's SummaryWriter names it.
std::string encode_text(double wall_time, std::string_view name, std::string_view text);

/// A new event file in a folder; world rank 0 has one. Each call appends whole records by one write, so a reader sees
/// them at once and a killed process leaves at most a cut last record, which readers skip. Existing files are never
/// touched. Throws Error{Environment}; after a failed write the file again ends with a whole record. Not thread-safe.
class EventFile {
 public:
  /// Creates `folder` if needed and events.out.tfevents.<seconds>.<host>.<pid>.<number> in it. `resumed_at`: the update
  /// this run continues after; what an earlier file in the folder holds beyond it is then dropped by TensorBoard.
  explicit EventFile(const fs::path& folder, std::optional<int64_t> resumed_at = {});

  void scalars(int64_t step, std::span<const Scalar> scalars);
  /// Hugging Face writes "args" and "model_config", both JSON.
  void text(std::string_view name, std::string_view text);
  const fs::path& path() const { return path_; }

 private:
  void append(std::string_view payload);
  fs::path path_;
  UniqueFd fd_;
  int64_t size_ = 0;  ///< of the whole records
};

}  // namespace lockstep::metrics
