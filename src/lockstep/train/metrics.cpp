#include "lockstep/train/metrics.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

namespace lockstep::train {
namespace {

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

/// What a killed run wrote after its last checkpoint is written again by the one that continues, a cut last line too.
std::string lines_up_to(const std::filesystem::path& path, int64_t update) {
  std::string kept;
  if (!std::filesystem::exists(path)) return kept;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer() && json["step"] <= update) {
      kept += line + "\n";
    }
  }
  return kept;
}

}  // namespace

std::string to_json_line(const UpdateMetrics& metrics) {
  nlohmann::ordered_json line;
  line["step"] = metrics.update;
  line["loss"] = number(metrics.loss);
  line["grad_norm"] = number(metrics.grad_norm);
  line["learning_rate"] = metrics.learning_rate;
  if (metrics.router_loss) line["aux_loss"] = number(*metrics.router_loss);
  if (metrics.has_entropy) line["entropy"] = number(metrics.entropy);
  if (metrics.has_accuracy) line["mean_token_accuracy"] = metrics.mean_token_accuracy;
  line["num_tokens"] = metrics.num_tokens;
  line["epoch"] = metrics.epoch;
  line["tokens_per_second"] = metrics.tokens_per_second();
  line["step_ms"] = metrics.step_ms;
  line["compute_ms"] = metrics.compute_ms;
  line["reduce_ms"] = metrics.reduce_ms;
  line["optimizer_ms"] = metrics.optimizer_ms;
  line["num_samples"] = metrics.num_samples;
  line["num_grains"] = metrics.num_grains;
  line["balance"] = metrics.balance;
  line["range_retries"] = metrics.range_retries;
  line["skipped"] = metrics.skipped;
  line["resident_bytes"] = metrics.resident_bytes;
  line["peak_resident_bytes"] = metrics.peak_resident_bytes;
  auto& hashes = line["block_hashes"] = nlohmann::ordered_json::array();
  for (const uint64_t hash : metrics.block_hashes) hashes.push_back(to_hex(hash));
  return line.dump();
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::optional<int64_t> continues_after) : path_(path) {
  std::error_code problem;
  std::filesystem::create_directories(path.parent_path(), problem);
  const std::string kept = continues_after ? lines_up_to(path, *continues_after) : "";
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw Error::environment("{}: cannot be created: {}. Choose another --output_dir.", path.string(),
                             std::strerror(errno));
  }
  write_all(kept);
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) close(fd_);
}

void MetricsFile::append(const UpdateMetrics& metrics) { append_line(to_json_line(metrics)); }

void MetricsFile::append_line(const std::string& json) { write_all(json + "\n"); }

void MetricsFile::write_all(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(fd_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error::environment("{}: writing failed: {}. Free some space; the run must be started again.",
                               path_.string(), std::strerror(errno));
    }
    done += static_cast<size_t>(count);
  }
}

}  // namespace lockstep::train
