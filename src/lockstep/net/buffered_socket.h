#pragma once

#include "lockstep/net/event_loop.h"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::net {

/// A connected, non-blocking stream socket on an EventLoop, with a buffer each way. Not thread-safe.
///
/// A callback may close() the socket but not destroy it: destroy the object itself later (for instance from a timer of
/// span zero, or when the owner sweeps closed ones).
class BufferedSocket {
 public:
  struct Limits {
    size_t max_in = 1 << 20;   ///< bytes received and not yet consumed; reading pauses there
    size_t max_out = 8 << 20;  ///< bytes to be sent; beyond it the peer counts as too slow and is closed
  };
  struct Callbacks {
    /// New bytes have come: look at in() and consume() what is understood.
    std::function<void()> on_bytes;
    /// The connection is over, with a reason for people ("closed by the peer", "Connection reset by peer", "too slow:
    /// ..."). Never called from inside send(), and not after close(), close_when_sent() or release().
    std::function<void(const std::string& reason)> on_end;
  };

  /// Takes over `fd`, which must be non-blocking.
  BufferedSocket(EventLoop& loop, UniqueFd fd, Limits limits, Callbacks callbacks);
  BufferedSocket(const BufferedSocket&) = delete;
  BufferedSocket& operator=(const BufferedSocket&) = delete;
  ~BufferedSocket() { close(); }

  std::string_view in() const { return std::string_view(in_).substr(consumed_); }
  void consume(size_t bytes);
  /// Queues and writes what can be written now. After the end it does nothing.
  void send(std::string_view bytes);
  /// Bytes that the kernel has not taken yet.
  size_t num_unsent() const { return out_.size() - sent_; }
  /// True when the peer's kernel has acknowledged all that was sent.
  bool all_acknowledged() const;
  /// Changes how much may wait on either side (after authentication).
  void set_limits(Limits limits);
  /// Closes at once; unsent bytes are lost. No callback follows.
  void close();
  /// Sends what is queued and the end of the stream, then waits for the peer to close, at most for `longest` in all; what
  /// comes meanwhile is dropped unread. Without that wait unread bytes would turn the close into a reset, and a reset
  /// takes the last message with it. No callback follows. is_open() stays true until then.
  void close_when_sent(Milliseconds longest);
  /// Gives the descriptor away; in() still holds what was read. No callback follows.
  UniqueFd release();
  bool is_open() const { return fd_.get() >= 0; }
  int fd() const { return fd_.get(); }

 private:
  void on_events(uint32_t events);
  /// Why there will be no more bytes; empty while there may be.
  std::string read_some();
  /// Why nothing more can be sent; empty while it can.
  std::string write_some();
  void drain();
  void end_soon(std::string reason);
  void update_interest();
  void end(const std::string& reason);

  EventLoop* loop_;
  UniqueFd fd_;
  Limits limits_;
  Callbacks callbacks_;
  std::string in_;
  size_t consumed_ = 0;
  std::string out_;
  size_t sent_ = 0;
  bool closing_ = false;   ///< close_when_sent() was called
  bool shut_down_ = false; ///< the end of our stream has been sent
  EventLoop::TimerId close_timer_ = 0;
  EventLoop::TimerId end_timer_ = 0;
  uint32_t interest_ = 0;
};

}  // namespace lockstep::net
