#pragma once

#include "lockstep/launch/line_multiplexer.h"
#include "lockstep/launch/output_queue.h"
#include "lockstep/launch/signals.h"

#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// Where output goes: descriptors of the caller, written to but neither closed nor made non-blocking.
struct Outputs {
  int out_fd = 1;
  int err_fd = 2;
};

/// What becomes of the bytes that workers write into pipes. Workers are numbered by local rank.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void feed(int worker, Stream stream, std::string_view bytes) = 0;
  /// The worker closed the stream.
  virtual void finish(int worker, Stream stream) = 0;
};

/// The caller's stdout and stderr, written to without blocking, with the lines of several workers kept whole. SIGPIPE
/// must be blocked (see SignalReader). Not thread-safe.
class Console final : public OutputSink {
 public:
  explicit Console(const Outputs& outputs);

  /// Before the workers of a round start. `prefixes` by worker: before each of their lines; none at all: as
  /// LineMultiplexer does without them.
  void begin_round(int num_workers, std::vector<std::string> prefixes = {});

  void feed(int worker, Stream stream, std::string_view bytes) override { lines_->feed(worker, stream, bytes); }
  void finish(int worker, Stream stream) override { lines_->finish(worker, stream); }
  /// Whole lines of lockstep itself.
  void print(Stream stream, std::string_view lines) { lines_->print(stream, lines); }
  /// "lockstep: `text`" on stderr.
  void say(const std::string& text) { print(Stream::Err, "lockstep: " + text + "\n"); }

  /// So much waits for a slow reader that the workers' pipes are better left alone.
  bool is_full(Stream stream) const;
  /// Descriptors that something is waiting for.
  void add_waiting(std::vector<pollfd>& waited) const;
  void write_some();
  /// Waits for slow readers; a signal ends the wait.
  void flush(SignalReader& signals);

 private:
  OutputQueue& queue(Stream stream) { return queues_[same_target_ ? 0 : static_cast<size_t>(stream)]; }

  LineMultiplexer::Targets targets_;
  bool same_target_;
  std::array<OutputQueue, 2> queues_;  ///< by Stream; only the first is used when both are one target
  std::unique_ptr<LineMultiplexer> lines_;
};

}  // namespace lockstep::launch
