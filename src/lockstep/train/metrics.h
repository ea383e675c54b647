#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::train {

/// Everything known about one update; the same on every rank except the times.
struct UpdateMetrics {
  int64_t update = 0;
  double epoch = 0;                   ///< Hugging Face's "epoch" after this update
  double loss = 0;                    ///< mean negative log-likelihood per target token, nats; with the router loss
  std::optional<double> router_loss;  ///< trl's "aux_loss", before its coefficient; mixtures of experts alone
  double grad_norm = 0;               ///< before clipping; NaN when skipped
  double learning_rate = 0;
  double entropy = 0;                 ///< mean over target tokens, nats
  double mean_token_accuracy = 0;
  bool has_entropy = true, has_accuracy = true;  ///< else the two are not told: a regression has neither
  int64_t num_tokens = 0;             ///< all tokens of the run so far, as trl counts them
  int64_t update_tokens = 0;          ///< of this update
  int64_t num_samples = 0;
  int64_t num_grains = 0;
  double balance = 1;                 ///< of the grains over all threads of all ranks
  bool skipped = false;               ///< --non_finite skip left it out
  int64_t range_retries = 0;
  double step_ms = 0, compute_ms = 0, reduce_ms = 0, optimizer_ms = 0;
  int64_t resident_bytes = 0;         ///< of this process
  int64_t peak_resident_bytes = 0;
  std::vector<uint64_t> block_hashes; ///< of the float32 masters after the update

  double tokens_per_second() const { return step_ms > 0 ? 1e3 * static_cast<double>(update_tokens) / step_ms : 0; }
};

/// One line of JSON, without the newline. Numbers at full precision; a value that is not finite is null.
std::string to_json_line(const UpdateMetrics& metrics);

/// metrics.jsonl: a line per update, on disk when append() returns.
class MetricsFile {
 public:
  /// Creates the folder if needed and starts the file anew; with `continues_after` it keeps what `path` holds of updates up
  /// to that one.
  explicit MetricsFile(const std::filesystem::path& path, std::optional<int64_t> continues_after = {});
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void append(const UpdateMetrics& metrics);
  /// Any other line of JSON, without the newline.
  void append_line(const std::string& json);

 private:
  void write_all(const std::string& text);
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace lockstep::train
