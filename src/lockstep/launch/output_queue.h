#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

/// Bytes on their way to a descriptor that this process shares with others and so must not make non-blocking. Writes
/// only what the descriptor takes at once (POLLOUT, pieces of PIPE_BUF), so a reader that pauses cannot stop the event
/// loop. The descriptor is borrowed. SIGPIPE must be blocked or ignored. Not thread-safe.
class OutputQueue {
 public:
  explicit OutputQueue(int fd);

  void push(std::string_view bytes);
  /// Writes what can be written now. A reader that is gone: the queue drops this and all later bytes.
  void write_some();

  int fd() const { return fd_; }
  size_t size() const { return bytes_.size() - written_; }
  bool empty() const { return size() == 0; }
  /// Why bytes are dropped ("Broken pipe"); empty while all goes well.
  const std::string& problem() const { return problem_; }

 private:
  bool takes_more() const;

  int fd_;
  bool is_regular_ = false;
  std::string bytes_;
  size_t written_ = 0;
  std::string problem_;
};

}  // namespace lockstep::launch
