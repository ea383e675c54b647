#pragma once

#include "lockstep/net/address.h"
#include "lockstep/net/event_loop.h"

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep::net {

/// A UDP socket on an EventLoop, for small datagrams that may be lost. Not thread-safe.
class DatagramSocket {
 public:
  /// Passes every link of IPv6 in one piece; what is longer is dropped by the receiver.
  static constexpr size_t kMaxBytes = 1'232;
  /// Must not stop the socket.
  using OnDatagram = std::function<void(std::string_view bytes, const Address& from)>;

  /// Bound to `local` (any_v6 takes both families; port 0: any free one). Absent, with `errno` telling why, when that
  /// cannot be had.
  static std::optional<DatagramSocket> open(const Address& local);
  DatagramSocket(DatagramSocket&&) = default;
  DatagramSocket& operator=(DatagramSocket&& other) noexcept {
    stop();
    fd_ = std::move(other.fd_);
    v6_ = other.v6_;
    loop_ = other.loop_;
    return *this;
  }
  ~DatagramSocket() { stop(); }

  void start(EventLoop& loop, OnDatagram on_datagram);
  void stop();
  /// What cannot be sent now is dropped.
  void send_to(std::string_view bytes, const Address& to);
  Address local() const { return Address::local_of(fd_.get()); }

 private:
  DatagramSocket(UniqueFd fd, bool v6) : fd_(std::move(fd)), v6_(v6) {}
  UniqueFd fd_;
  bool v6_;
  EventLoop* loop_ = nullptr;
};

}  // namespace lockstep::net
