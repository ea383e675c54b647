#include "lockstep/rendezvous/store_server.h"

#include "lockstep/net/buffered_socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::rendezvous {
namespace {

/// Read at once from a connection, so that none keeps the loop from the others for long.
constexpr size_t kReadAtOnce = 64 << 10;

void tune(int fd) {
  const int on = 1;
  const int idle_s = 60;
  const int interval_s = 10;
  const int probes = 6;
  // None of these can fail on a TCP socket; on another kind they have no object.
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace

struct StoreServer::Connection {
  Connection(StoreContext& context, ClientId client, const net::Address& address) : id(client), peer(address) {
    session.emplace(context, client);
  }

  ClientId id;
  net::Address peer;
  std::optional<StoreSession> session;  ///< absent when the connection has ended
  std::optional<net::BufferedSocket> socket;
  uint64_t queued = 0;      ///< bytes of replies since the beginning
  uint64_t taken = 0;       ///< of them, by the kernel at the last sweep
  Milliseconds waited{0};   ///< for the handshake, or for the client to read; as sweeps have seen it
  size_t accounted = 0;     ///< its part of buffer_bytes_

  size_t held() const { return session->held_bytes() + socket->num_unsent(); }
};

StoreServer::StoreServer(net::EventLoop& loop, std::vector<net::ListenSocket> sockets, const Limits& limits,
                         Allowed allowed, Log log)
    : loop_(&loop),
      limits_(limits),
      allowed_(std::move(allowed)),
      log_(std::move(log)),
      context_{.limits = limits.command, .data = StoreData(limits.data), .wake = [this](ClientId id) { wake(id); }},
      sweep_interval_(std::clamp(std::min(limits.handshake, limits.stalled) / 4, Milliseconds(1), Milliseconds(1000))) {
  for (net::ListenSocket& socket : sockets) {
    listeners_.push_back(std::make_unique<net::Listener>(
        loop, std::move(socket),
        [this](UniqueFd fd, const net::Address& peer) { accept(std::move(fd), peer, {}); },
        [this](const std::string& text) { log_("store: " + text); }));
  }
}

StoreServer::~StoreServer() {
  loop_->cancel(sweep_timer_);
  loop_->cancel(burial_timer_);
}

StoreServer::Allowed StoreServer::only(std::vector<net::Address> hosts) {
  return [hosts = std::move(hosts)](const net::Address& peer) {
    return std::any_of(hosts.begin(), hosts.end(), [&](const net::Address& host) { return host.same_host(peer); });
  };
}

void StoreServer::adopt(UniqueFd fd, std::string_view bytes_read) {
  const net::Address peer = net::Address::peer_of(fd.get());
  accept(std::move(fd), peer, bytes_read);
}

void StoreServer::accept(UniqueFd fd, const net::Address& peer, std::string_view bytes_read) {
  if (!allowed_(peer)) return refuse(peer, "this is no address of a member of the job");
  if (connections_.size() >= limits_.connections) {
    return refuse(peer, fmt::format("{} connections are open, which is the limit", connections_.size()));
  }
  ++accepted_;
  tune(fd.get());
  auto owned = std::make_unique<Connection>(context_, next_client_++, peer);
  Connection& connection = *owned;
  connections_.emplace(connection.id, std::move(owned));
  // The session refuses before max_out is reached; a byte for the end of a wait may come on top.
  connection.socket.emplace(*loop_, std::move(fd),
                            net::BufferedSocket::Limits{.max_in = kReadAtOnce, .max_out = limits_.reply_bytes + 64},
                            net::BufferedSocket::Callbacks{
                                .on_bytes = [this, &connection] {
                                  net::BufferedSocket& socket = *connection.socket;
                                  const size_t size = socket.in().size();
                                  on_bytes(connection, socket.in());
                                  socket.consume(size);
                                },
                                .on_end = [this, &connection](const std::string&) { end(connection); }});
  arm_sweep();
  if (!bytes_read.empty()) on_bytes(connection, bytes_read);
}

void StoreServer::refuse(const net::Address& peer, std::string_view why) {
  ++refused_;
  say(peer, fmt::format("refused a connection from {}: {}", peer.text(), why));
}

void StoreServer::on_bytes(Connection& connection, std::string_view bytes) {
  replies_.clear();
  const size_t unsent = connection.socket->num_unsent();
  const size_t room = limits_.reply_bytes > unsent ? limits_.reply_bytes - unsent : 0;
  if (const Refusal refusal = connection.session->feed(bytes, replies_, room)) return close(connection, *refusal);
  if (!replies_.empty()) {
    connection.queued += replies_.size();
    connection.socket->send(replies_);
    constexpr size_t kKeptCapacity = 1 << 20;
    if (replies_.capacity() > kKeptCapacity) std::string().swap(replies_);
    if (connection.socket->num_unsent() > 0) arm_sweep();
  }
  account(connection);
}

void StoreServer::close(Connection& connection, const std::string& why) {
  ++closed_;
  say(connection.peer, fmt::format("closed the connection from {}: {}", connection.peer.text(), why));
  end(connection);
}

void StoreServer::end(Connection& connection) {
  const auto found = connections_.find(connection.id);
  buffer_bytes_ -= connection.accounted;
  connection.socket->close();
  connection.session.reset();
  ended_.push_back(std::move(found->second));
  connections_.erase(found);
  if (burial_timer_ != 0) return;
  burial_timer_ = loop_->after(Milliseconds(0), [this] {
    burial_timer_ = 0;
    ended_.clear();
  });
}

void StoreServer::wake(ClientId client) {
  Connection& connection = *connections_.at(client);
  const char stop = kStopWaiting;
  ++connection.queued;
  connection.socket->send({&stop, 1});
}

void StoreServer::account(Connection& connection) {
  const size_t held = connection.held();
  buffer_bytes_ = buffer_bytes_ - connection.accounted + held;
  connection.accounted = held;
  if (buffer_bytes_ > limits_.buffer_bytes) hold_buffer_limit();
}

// Clients may have read since they were accounted for; only then is somebody closed: whoever holds most.
void StoreServer::hold_buffer_limit() {
  buffer_bytes_ = 0;
  for (auto& [id, connection] : connections_) {
    connection->accounted = connection->held();
    buffer_bytes_ += connection->accounted;
  }
  while (buffer_bytes_ > limits_.buffer_bytes) {
    const auto most = std::max_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
      return a.second->accounted < b.second->accounted;
    });
    Connection& connection = *most->second;
    close(connection, fmt::format("all clients hold {} bytes of unfinished commands and unread replies, of which this "
                                  "one {}; {} are allowed",
                                  buffer_bytes_, connection.accounted, limits_.buffer_bytes));
  }
}

void StoreServer::clear() {
  context_.data.clear();
  while (!connections_.empty()) end(*connections_.begin()->second);
}

StoreServer::Statistics StoreServer::statistics() const {
  size_t held = 0;
  for (const auto& [id, connection] : connections_) held += connection->held();
  return {.connections = connections_.size(),
          .waiting = context_.data.num_waiting(),
          .keys = context_.data.num_keys(),
          .data_bytes = context_.data.bytes(),
          .buffer_bytes = held,
          .accepted = accepted_,
          .refused = refused_,
          .closed = closed_,
          .commands = context_.num_commands};
}

void StoreServer::arm_sweep() {
  if (sweep_timer_ != 0) return;
  sweep_timer_ = loop_->after(sweep_interval_, [this] {
    sweep_timer_ = 0;
    sweep();
  });
}

// Counts its own rounds instead of reading the clock: a server that was stopped itself blames nobody.
void StoreServer::sweep() {
  std::vector<Connection*> late;
  bool watch_on = false;
  for (auto& [id, connection] : connections_) {
    const bool in_handshake = !connection->session->validated();
    const uint64_t taken = connection->queued - connection->socket->num_unsent();
    const bool unread = taken < connection->queued;
    const bool moves = std::exchange(connection->taken, taken) != taken;
    if ((!in_handshake && !unread) || moves) connection->waited = Milliseconds(0);
    if (!in_handshake && !unread) continue;
    watch_on = true;
    connection->waited += sweep_interval_;
    if (connection->waited > (in_handshake ? limits_.handshake : limits_.stalled)) late.push_back(connection.get());
  }
  for (Connection* connection : late) {
    close(*connection, connection->session->validated()
                           ? fmt::format("it has read nothing for {} s while {} bytes wait for it",
                                         limits_.stalled.count() / 1000, connection->socket->num_unsent())
                           : fmt::format("it has not introduced itself for {} s", limits_.handshake.count() / 1000));
  }
  if (watch_on) arm_sweep();
}

void StoreServer::say(const net::Address& peer, const std::string& line) {
  if (const auto passed = refusals_.pass(peer, "store: " + line, Clock::now())) log_(*passed);
}

}  // namespace lockstep::rendezvous
