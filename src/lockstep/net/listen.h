#pragma once

#include "lockstep/net/address.h"
#include "lockstep/net/event_loop.h"

#include <functional>
#include <optional>
#include <string>

namespace lockstep::net {

/// A bound, listening TCP socket; connections wait in the kernel until a Listener takes them.
class ListenSocket {
 public:
  /// On `address`, or where absent on all of both families (IPv4 alone on a host without IPv6). Port 0: any free one.
  /// Throws Error{Environment} naming the port and the remedy.
  static ListenSocket open(const std::optional<Address>& address, uint16_t port);
  /// The same, absent when the port is in use.
  static std::optional<ListenSocket> open_if_free(const std::optional<Address>& address, uint16_t port);

  uint16_t port() const { return local_.port(); }
  const Address& local() const { return local_; }
  int fd() const { return fd_.get(); }

 private:
  ListenSocket(UniqueFd fd, const Address& local) : fd_(std::move(fd)), local_(local) {}
  UniqueFd fd_;
  Address local_;
};

/// Accepts on an EventLoop.
class Listener {
 public:
  /// `fd` is non-blocking and closes on exec. Must not destroy the listener.
  using OnAccept = std::function<void(UniqueFd fd, const Address& peer)>;
  /// For people: why nothing can be accepted at the moment (out of descriptors). Told once until it works again.
  using OnProblem = std::function<void(const std::string& text)>;

  Listener(EventLoop& loop, ListenSocket socket, OnAccept on_accept, OnProblem on_problem);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  uint16_t port() const { return socket_.port(); }
  const Address& local() const { return socket_.local(); }

 private:
  void accept_some();
  void watch();
  void pause(int error);

  EventLoop* loop_;
  ListenSocket socket_;
  OnAccept on_accept_;
  OnProblem on_problem_;
  bool told_ = false;
  EventLoop::TimerId pause_timer_ = 0;
};

}  // namespace lockstep::net
