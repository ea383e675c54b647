#pragma once

#include "lockstep/launch/console.h"
#include "lockstep/launch/output_rules.h"
#include "lockstep/launch/run_spec.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A log file that may stop taking bytes: what then comes is dropped. Move-only.
class LogFile {
 public:
  LogFile() = default;
  /// An existing file is emptied.
  explicit LogFile(fs::path path);
  /// Returns what went wrong, once, else an empty text.
  std::string write(std::string_view bytes);
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  UniqueFd fd_;
  std::string problem_;  ///< of opening it, until it is told
};

/// The last `kLines` lines (and at most `kBytes` bytes) of a stream.
class LastLines {
 public:
  static constexpr size_t kLines = 10;
  static constexpr size_t kBytes = 8 * 1024;
  void feed(std::string_view bytes);
  std::string text() const;

 private:
  std::string kept_;
};

/// torchrun's tree of log files, <root>/<run id>_<8 characters>/attempt_<n>/<local rank>/{stdout.log, stderr.log,
/// error.json}, and what becomes of the workers' piped output: files, the console behind a prefix, lines with certain
/// words. A log disk that is full ends nothing: one warning, and the run goes on. Not thread-safe.
class LogTree final : public OutputSink {
 public:
  /// Reads nothing and writes nothing yet.
  LogTree(const RunSpec& spec, Console& console);
  LogTree(const LogTree&) = delete;
  LogTree& operator=(const LogTree&) = delete;
  /// As close(false), if that was not called.
  ~LogTree() override { close(false); }

  /// Makes the folders of an attempt, anew if it is there. A first temporary one sweeps out those of launchers that were
  /// killed before anything was written into them. Throws Error{Environment} when the root that the user named
  /// cannot be used; a full disk, or no temporary folder, is warned about only.
  void begin_attempt(const Placement& placement);
  /// Where the worker is to leave its error record; empty when there is no place for it.
  std::string error_file(int local_rank) const;
  StreamRoute route_of(int local_rank, Stream stream) const { return route(spec_.output, local_rank, stream); }

  void feed(int worker, Stream stream, std::string_view bytes) override;
  void finish(int worker, Stream stream) override;
  /// Of the worker's stderr, if it was piped.
  std::string last_lines(int local_rank) const;

  /// After the last round: a temporary tree goes after a success, and after a failure if there is no file in it.
  void close(bool succeeded);
  /// The folder of this run; absent while there is none, and after close() has removed it.
  const std::optional<fs::path>& run_folder() const { return run_folder_; }

 private:
  struct Source {
    StreamRoute route;
    LogFile file;
    LastLines last_lines;
    std::string partial;  ///< of a filtered stream: the line that has not ended yet
    std::string prefix;
  };
  Source& source(int worker, Stream stream) {
    return sources_[2 * static_cast<size_t>(worker) + static_cast<size_t>(stream)];
  }
  const std::vector<std::string>& filters(Stream stream) const {
    return stream == Stream::Out ? spec_.output.stdout_filters : spec_.output.stderr_filters;
  }
  void make_folders(int attempt);
  void filter(Source& from, Stream stream, std::string_view bytes);
  void write(LogFile& file, std::string_view bytes);
  void warn(const std::string& problem);

  const RunSpec& spec_;
  Console& console_;
  std::optional<fs::path> temporary_root_;
  std::optional<FolderLock> root_lock_;  ///< on it: this launcher lives
  std::optional<fs::path> run_folder_;
  std::optional<fs::path> attempt_;  ///< absent: /dev/null, or it could not be made
  std::vector<Source> sources_;      ///< by worker, then stream
  std::array<std::optional<LogFile>, 2> filtered_;
  bool warned_ = false;
};

}  // namespace lockstep::launch
