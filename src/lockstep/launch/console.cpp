#include "lockstep/launch/console.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace lockstep::launch {

namespace {

/// Output waiting for a slow reader; beyond it the workers' pipes are left to fill, which stops the writers.
constexpr size_t kMaxQueuedBytes = 1 << 20;

bool same_file(int a, int b) {
  struct stat first = {};
  struct stat second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

Console::Console(const Outputs& outputs)
    : targets_{.out_is_terminal = isatty(outputs.out_fd) != 0, .err_is_terminal = isatty(outputs.err_fd) != 0,
               .same = same_file(outputs.out_fd, outputs.err_fd)},
      same_target_(targets_.same),
      queues_{OutputQueue(outputs.out_fd), OutputQueue(outputs.err_fd)} {
  begin_round(0);
}

void Console::begin_round(int num_workers, std::vector<std::string> prefixes) {
  lines_ = std::make_unique<LineMultiplexer>(
      num_workers, targets_, [this](Stream stream, std::string_view bytes) { queue(stream).push(bytes); },
      std::move(prefixes));
}

bool Console::is_full(Stream stream) const {
  return queues_[same_target_ ? 0 : static_cast<size_t>(stream)].size() >= kMaxQueuedBytes;
}

void Console::add_waiting(std::vector<pollfd>& waited) const {
  for (const OutputQueue& q : queues_) {
    if (!q.empty()) waited.push_back({q.fd(), POLLOUT, 0});
  }
}

void Console::write_some() {
  for (const Stream stream : {Stream::Out, Stream::Err}) {
    OutputQueue& q = queue(stream);
    const bool was_well = q.problem().empty();
    q.write_some();
    if (!was_well || q.problem().empty() || same_target_) continue;
    const Stream other = stream == Stream::Out ? Stream::Err : Stream::Out;
    lines_->print(other, fmt::format("lockstep: {} cannot be written ({}); the run goes on without it\n",
                                     stream == Stream::Out ? "stdout" : "stderr", q.problem()));
  }
}

void Console::flush(SignalReader& signals) {
  for (write_some(); !queues_[0].empty() || !queues_[1].empty(); write_some()) {
    std::vector<pollfd> waited = {{signals.fd(), POLLIN, 0}};
    add_waiting(waited);
    poll(waited.data(), waited.size(), -1);
    const std::vector<int> got = signals.read();
    if (std::any_of(got.begin(), got.end(), [](int signal) { return signal != SIGCHLD; })) return;
  }
}

}  // namespace lockstep::launch
