#include "lockstep/data/token_cache.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <span>
#include <thread>

namespace lockstep::data {
namespace {

constexpr uint64_t kSmallBytes = uint64_t{8} << 20;  // made anew in about a second

/// Numbered pieces of what decides the rows.
class KeyHash {
 public:
  void add(std::string_view text) { hash_.add(next_++, std::as_bytes(std::span(text))); }
  void add_file(const fs::path& path) {
    add(path.string());
    const MappedFile file(path);
    constexpr size_t kPieceBytes = size_t{1} << 24;
    const auto bytes = file.bytes();
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      hash_.add(next_++, bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at)));
    }
  }
  std::string text() const { return to_hex(hash_.value()); }

 private:
  PieceHash hash_;
  uint64_t next_ = 0;
};

std::string today() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return fmt::format("{}-{}-{}", parts.tm_year, parts.tm_mon, parts.tm_mday);
}

void add_options(const CacheInputs& inputs, KeyHash& key) {
  const DataOptions& options = inputs.options;
  const auto number = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string("none"); };
  key.add(fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", options.dataset_text_field, number(options.max_length),
                      options.truncation_mode, number(options.completion_only_loss), options.assistant_only_loss,
                      options.eos_token.value_or(""), options.packing, options.packing_strategy, inputs.vocab_size,
                      number(inputs.max_samples)));
}

std::string key_of(const CacheInputs& inputs) {
  KeyHash key;
  add_options(inputs, key);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path file = inputs.tokenizer.folder() / name;
    std::error_code error;
    if (fs::exists(file, error)) key.add_file(file);
  }
  const std::string chat_template = inputs.chat_template == nullptr ? "" : inputs.chat_template->source();
  key.add(chat_template);
  if (chat_template.find("strftime_now") != std::string::npos) key.add(today());
  for (const Source& source : inputs.sources) {
    key.add(fmt::format("{}|{}|{}", source.name, fmt::join(source.columns, ","), source.max_rows.value_or(-1)));
    for (const fs::path& file : source.files) key.add_file(file);
  }
  return key.text();
}

uint64_t bytes_of(const std::vector<Source>& sources) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const Source& source : sources) {
    for (const fs::path& file : source.files) bytes += fs::file_size(file, error);
  }
  return bytes;
}

/// Nothing where neither is set.
std::optional<fs::path> users_cache() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder == '/') return fs::path(folder);
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') return fs::path(home) / ".cache";
  return std::nullopt;
}

/// Held by the process that makes the rows of one file.
class MakersLock {
 public:
  /// False when it was not had in time, or the file system knows no locks.
  bool wait(const fs::path& file) {
    const fs::path path = file.string() + ".lock";
    fd_ = UniqueFd(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666));
    constexpr auto kLongest = std::chrono::minutes(30);
    constexpr auto kTold = std::chrono::seconds(5);
    const auto start = std::chrono::steady_clock::now();
    bool is_told = false;
    while (fd_.get() >= 0) {
      if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return true;
      const auto waited = std::chrono::steady_clock::now() - start;
      if ((errno != EWOULDBLOCK && errno != EINTR) || waited > kLongest) return false;
      if (!is_told && waited > kTold) {
        log::info("data", "waiting for another process to make the tokens in {}", file.string());
        is_told = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

 private:
  UniqueFd fd_;
};

std::optional<Dataset> usable(const fs::path& file) {
  std::string fault;
  auto dataset = read_token_cache(file, fault);
  if (!fault.empty()) log::warn("data", "the token cache {} is damaged ({}) and made anew", file.string(), fault);
  if (dataset) dataset->report.cache = "read from " + file.string();
  return dataset;
}

}  // namespace

std::optional<fs::path> token_cache_file(const CacheInputs& inputs) {
  const std::string& wish = inputs.options.token_cache;
  if (wish == "none") return std::nullopt;
  fs::path folder = expand_user(wish);
  if (wish == "auto") {
    const auto cache = users_cache();
    if (!cache || bytes_of(inputs.sources) < kSmallBytes) return std::nullopt;
    folder = *cache / "lockstep" / "tokens";
  }
  try {
    require_writable_folder(folder);
  } catch (const Error& error) {
    if (wish != "auto") throw Error::environment("--token_cache {}: {}", wish, error.what());
    log::warn("data", "tokens are not kept for the next start: {}", error.what());
    return std::nullopt;
  }
  return folder / (key_of(inputs) + ".tokens");
}

Dataset cached_dataset(const fs::path& file, const std::function<Dataset()>& make) {
  if (auto dataset = usable(file)) return *std::move(dataset);
  MakersLock lock;
  // Whoever had the lock before may have made them.
  if (lock.wait(file)) {
    std::string fault;
    if (auto dataset = read_token_cache(file, fault)) {
      dataset->report.cache = "read from " + file.string();
      return *std::move(dataset);
    }
  }
  Dataset dataset = make();
  try {
    write_token_cache(file, dataset);
    dataset.report.cache = "kept in " + file.string();
  } catch (const Error& error) {
    log::warn("data", "tokens are not kept for the next start: {}", error.what());
  }
  return dataset;
}

}  // namespace lockstep::data
