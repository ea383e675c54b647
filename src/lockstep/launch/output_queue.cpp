#include "lockstep/launch/output_queue.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace lockstep::launch {

OutputQueue::OutputQueue(int fd) : fd_(fd) {
  struct stat status = {};
  is_regular_ = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

void OutputQueue::push(std::string_view bytes) {
  if (problem_.empty()) bytes_.append(bytes);
}

bool OutputQueue::takes_more() const {
  if (is_regular_) return true;
  pollfd descriptor = {fd_, POLLOUT, 0};
  return poll(&descriptor, 1, 0) > 0;
}

void OutputQueue::write_some() {
  while (!empty() && takes_more()) {
    // POLLOUT promises room for PIPE_BUF bytes, not for more.
    const size_t piece = is_regular_ ? size() : std::min<size_t>(size(), PIPE_BUF);
    const ssize_t count = write(fd_, bytes_.data() + written_, piece);
    if (count >= 0) {
      written_ += static_cast<size_t>(count);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EINTR) continue;
    problem_ = std::strerror(errno);
    bytes_.clear();
    written_ = 0;
  }
  // Moving the rest down each time would cost more than the writes.
  if (empty() || written_ > bytes_.size() / 2) {
    bytes_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace lockstep::launch
