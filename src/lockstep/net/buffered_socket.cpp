#include "lockstep/net/buffered_socket.h"

#include "lockstep/base/error.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::net {
namespace {

/// What one large message needed is given back; a small buffer is kept for the next.
void empty(std::string& buffer) {
  constexpr size_t kKept = 64 * 1024;
  if (buffer.capacity() > kKept) std::string().swap(buffer);
  else buffer.clear();
}

}  // namespace

BufferedSocket::BufferedSocket(EventLoop& loop, UniqueFd fd, Limits limits, Callbacks callbacks)
    : loop_(&loop), fd_(std::move(fd)), limits_(limits), callbacks_(std::move(callbacks)), interest_(EPOLLIN) {
  loop_->watch(fd_.get(), interest_, [this](uint32_t events) { on_events(events); });
}

void BufferedSocket::consume(size_t bytes) {
  LS_CHECK(bytes <= in().size(), "consume {} of {} bytes", bytes, in().size());
  consumed_ += bytes;
  if (consumed_ == in_.size()) {
    empty(in_);
    consumed_ = 0;
  } else if (consumed_ > in_.size() / 2) {
    in_.erase(0, consumed_);
    consumed_ = 0;
  }
  if (is_open()) update_interest();
}

void BufferedSocket::send(std::string_view bytes) {
  if (!is_open() || closing_ || end_timer_ != 0) return;
  out_.append(bytes);
  if (std::string reason = write_some(); !reason.empty()) return end_soon(std::move(reason));
  if (num_unsent() > limits_.max_out) end_soon(fmt::format("too slow: {} bytes wait to be sent", num_unsent()));
}

bool BufferedSocket::all_acknowledged() const {
  int queued = 0;
  return num_unsent() == 0 && ::ioctl(fd_.get(), SIOCOUTQ, &queued) == 0 && queued == 0;
}

void BufferedSocket::set_limits(Limits limits) {
  limits_ = limits;
  if (is_open()) update_interest();
}

void BufferedSocket::close() {
  if (is_open()) release();
}

UniqueFd BufferedSocket::release() {
  loop_->cancel(close_timer_);
  loop_->cancel(end_timer_);
  if (is_open()) loop_->unwatch(fd_.get());
  return UniqueFd(fd_.release());
}

void BufferedSocket::close_when_sent(Milliseconds longest) {
  if (!is_open() || closing_) return;
  if (end_timer_ != 0) return close();
  closing_ = true;
  close_timer_ = loop_->after(longest, [this] { close(); });
  if (!write_some().empty()) close();
}

void BufferedSocket::on_events(uint32_t events) {
  if (end_timer_ != 0) return;
  if ((events & EPOLLOUT) != 0) {
    if (const std::string reason = write_some(); !reason.empty()) return closing_ ? close() : end(reason);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  if (closing_) return drain();
  if ((interest_ & EPOLLIN) == 0) {
    // Reading has paused and yet the kernel has something to say, which cannot be masked: it is an error.
    return end("the connection broke");
  }
  const std::string reason = read_some();
  // What came before the end is still handed on.
  if (is_open() && !in().empty() && callbacks_.on_bytes) callbacks_.on_bytes();
  if (!reason.empty() && is_open() && !closing_) end(reason);
}

std::string BufferedSocket::read_some() {
  std::array<char, 64 * 1024> buffer;
  while (in().size() < limits_.max_in) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), std::min(buffer.size(), limits_.max_in - in().size()), 0);
    if (got > 0) {
      in_.append(buffer.data(), static_cast<size_t>(got));
      // A short read means that the socket is empty now; what comes next wakes the loop again.
      if (static_cast<size_t>(got) < buffer.size()) break;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    return got == 0 ? "closed by the peer" : std::strerror(errno);
  }
  update_interest();
  return {};
}

void BufferedSocket::drain() {
  std::array<char, 64 * 1024> buffer;
  const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return;
  close();
}

std::string BufferedSocket::write_some() {
  while (num_unsent() > 0) {
    const ssize_t sent = ::send(fd_.get(), out_.data() + sent_, num_unsent(), MSG_NOSIGNAL);
    if (sent > 0) {
      sent_ += static_cast<size_t>(sent);
    } else if (errno == EINTR) {
      continue;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else {
      return std::strerror(errno);
    }
  }
  if (num_unsent() == 0) {
    empty(out_);
    sent_ = 0;
    if (closing_ && !shut_down_) {
      shut_down_ = true;
      ::shutdown(fd_.get(), SHUT_WR);
    }
  } else if (sent_ > out_.size() / 2) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  update_interest();
  return {};
}

void BufferedSocket::update_interest() {
  uint32_t wanted = 0;
  if (closing_ || in().size() < limits_.max_in) wanted |= EPOLLIN;
  if (num_unsent() > 0) wanted |= EPOLLOUT;
  if (wanted == interest_) return;
  interest_ = wanted;
  loop_->change(fd_.get(), interest_);
}

void BufferedSocket::end_soon(std::string reason) {
  end_timer_ = loop_->after(Milliseconds(0), [this, why = std::move(reason)] { end(why); });
}

void BufferedSocket::end(const std::string& reason) {
  const std::string why = reason;  // may live in the timer that close() cancels
  close();
  // The callback may replace the callbacks' owner; it runs from a copy.
  const auto on_end = callbacks_.on_end;
  if (on_end) on_end(why);
}

}  // namespace lockstep::net
