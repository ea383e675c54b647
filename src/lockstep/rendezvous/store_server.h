#pragma once

#include "lockstep/net/address.h"
#include "lockstep/net/event_loop.h"
#include "lockstep/net/listen.h"
#include "lockstep/rendezvous/refusal_log.h"
#include "lockstep/rendezvous/store_session.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::rendezvous {

/// A server that clients of libtorch's TCPStore (2.11 to 2.15) can use, on an EventLoop. Not thread-safe.
///
/// Such clients cannot authenticate themselves, so who may connect is decided by address. A client that breaks the
/// protocol, asks for more than the limits allow or does not read its replies is closed, with a line in the log that
/// says why; the others do not notice. Memory: data.total_bytes + buffer_bytes + the kernel's socket buffers.
class StoreServer {
 public:
  struct Limits {
    CommandLimits command = {};
    DataLimits data = {};
    size_t reply_bytes = size_t{128} << 20;   ///< that may wait to be read by one client
    size_t buffer_bytes = size_t{512} << 20;  ///< unfinished commands and unread replies of all clients
    size_t connections = 65'536;
    Milliseconds handshake{10'000};  ///< until a connection must have sent its VALIDATE
    Milliseconds stalled{60'000};    ///< for which a client may read nothing of what waits for it
  };
  using Allowed = std::function<bool(const net::Address& peer)>;
  /// One line for people, without a newline. Of one host a few in a minute (RefusalLog).
  using Log = std::function<void(const std::string& line)>;

  struct Statistics {
    size_t connections = 0;
    size_t waiting = 0;  ///< of them in a WAIT or BARRIER
    size_t keys = 0;
    size_t data_bytes = 0;
    size_t buffer_bytes = 0;
    uint64_t accepted = 0;
    uint64_t refused = 0;  ///< because of their address, or as one too many
    uint64_t closed = 0;   ///< because of what they sent or did not read
    std::array<uint64_t, kNumStoreOps> commands{};
  };

  /// Takes connections from `sockets`, which may be none: see adopt(). `allowed` is asked once per connection.
  StoreServer(net::EventLoop& loop, std::vector<net::ListenSocket> sockets, const Limits& limits, Allowed allowed,
              Log log);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();

  /// Of the first socket; 0 when there is none.
  uint16_t port() const { return listeners_.empty() ? 0 : listeners_.front()->port(); }
  /// A connection that came elsewhere, and what has been read from it. `fd` is non-blocking.
  void adopt(UniqueFd fd, std::string_view bytes_read);
  /// For connections from now on.
  void set_allowed(Allowed allowed) { allowed_ = std::move(allowed); }
  /// Forgets all keys and closes all connections: what workers of the last round still send must not reach the next.
  void clear();
  Statistics statistics() const;

  /// Peers whose host is one of `hosts` (ports do not count).
  static Allowed only(std::vector<net::Address> hosts);

 private:
  using ClientId = StoreData::ClientId;
  struct Connection;

  void accept(UniqueFd fd, const net::Address& peer, std::string_view bytes_read);
  void refuse(const net::Address& peer, std::string_view why);
  void on_bytes(Connection& connection, std::string_view bytes);
  void close(Connection& connection, const std::string& why);
  void end(Connection& connection);
  void wake(ClientId client);
  void account(Connection& connection);
  void hold_buffer_limit();
  void arm_sweep();
  void sweep();
  void say(const net::Address& peer, const std::string& line);

  net::EventLoop* loop_;
  Limits limits_;
  Allowed allowed_;
  Log log_;
  StoreContext context_;
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  std::unordered_map<ClientId, std::unique_ptr<Connection>> connections_;
  /// Ended, and destroyed when no callback of theirs can be running.
  std::vector<std::unique_ptr<Connection>> ended_;
  ClientId next_client_ = 1;
  size_t buffer_bytes_ = 0;  ///< at least what connections hold; exact after hold_buffer_limit()
  uint64_t accepted_ = 0;
  uint64_t refused_ = 0;
  uint64_t closed_ = 0;
  RefusalLog refusals_;
  std::string replies_;  ///< scratch space of on_bytes()
  Milliseconds sweep_interval_;
  net::EventLoop::TimerId sweep_timer_ = 0;
  net::EventLoop::TimerId burial_timer_ = 0;
};

}  // namespace lockstep::rendezvous
