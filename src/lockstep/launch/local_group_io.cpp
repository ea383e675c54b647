// What workers write: their streams, and the control socket of lockstep's own.
#include "lockstep/launch/local_group_impl.h"
#include "lockstep/launch/messages.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lockstep::launch {

void LocalGroup::Impl::read_from(int fd) {
  for (Worker& w : workers) {
    if (fd == w.process.control.get()) return read_control(w);
    if (fd == w.process.out.get()) return static_cast<void>(read_output(w, Stream::Out));
    if (fd == w.process.err.get()) return static_cast<void>(read_output(w, Stream::Err));
  }
}

size_t LocalGroup::Impl::read_output(Worker& w, Stream stream) {
  std::array<char, 64 * 1024> buffer;
  const ssize_t got = read(pipe_of(w, stream).get(), buffer.data(), buffer.size());
  if (got > 0) {
    sink.feed(w.end.local_rank, stream, {buffer.data(), static_cast<size_t>(got)});
    return static_cast<size_t>(got);
  }
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) close_output(w, stream);
  return 0;
}

void LocalGroup::Impl::close_output(Worker& w, Stream stream) {
  sink.finish(w.end.local_rank, stream);
  pipe_of(w, stream).reset();
}

/// Of a worker that has ended, the pipe holds at most its capacity: a stranger that still has it open (a daemon the
/// worker left) cannot keep this loop going.
void LocalGroup::Impl::drain_output(Worker& w, Stream stream) {
  const int fd = pipe_of(w, stream).get();
  if (fd < 0) return;
  size_t left = static_cast<size_t>(std::max(fcntl(fd, F_GETPIPE_SZ), 1 << 16));
  while (left > 0 && pipe_of(w, stream).get() >= 0) {
    const size_t got = read_output(w, stream);
    if (got == 0) break;
    left -= std::min(left, got);
  }
  if (pipe_of(w, stream).get() >= 0) close_output(w, stream);
}

void LocalGroup::Impl::read_control(Worker& w) {
  std::array<char, kMaxMessageBytes> buffer;
  while (w.process.control.get() >= 0) {
    const ssize_t got = recv(w.process.control.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) {
      take_message(w, {buffer.data(), static_cast<size_t>(got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return;
    } else {
      // Closed by a worker that ends, or that hangs while ending: its silence goes on to count.
      w.process.control.reset();
    }
  }
}

void LocalGroup::Impl::take_message(Worker& w, std::string_view packet) {
  const auto message = decode(packet);
  if (!message) {
    return console.say(fmt::format("rank {} sent an unknown message: \"{}\"", w.end.world_rank, packet.substr(0, 80)));
  }
  supervisor->heard(w.end.local_rank);
  w.has_joined = true;
  switch (message->type) {
    case MessageType::Hello:
    case MessageType::Beat:
      break;
    case MessageType::Phase:
      w.end.phase = message->text;
      break;
    case MessageType::Done:
      if (w.end.world_rank == 0) done_text = message->text;
      break;
    case MessageType::Failed:
      w.end.record = read_error_record(settings.record_folder, w.end.world_rank);
      if (w.end.record) supervisor->failed(w.end.local_rank, classify(w.end));
      break;
  }
}

}  // namespace lockstep::launch
