#include "lockstep/net/listen.h"

#include "lockstep/base/error.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

namespace lockstep::net {
namespace {

struct Opened {
  UniqueFd fd{};
  int error = 0;
};

Opened open_at(const Address& address) {
  Opened opened{UniqueFd(::socket(address.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
  const int fd = opened.fd.get();
  const int on = 1;
  const int off = 0;
  const Address::Raw raw = address.raw();
  // Reuse: a listener that ended a moment ago does not keep its port busy.
  if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      (address.is_v6() && ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
      ::bind(fd, raw.get(), raw.size) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    opened.error = errno;
  }
  return opened;
}

Opened open_any(const std::optional<Address>& address, uint16_t port) {
  if (address) return open_at(address->with_port(port));
  Opened both = open_at(Address::any_v6(port));
  if (both.error == EAFNOSUPPORT || both.error == EADDRNOTAVAIL) return open_at(Address::any_v4(port));
  return both;
}

[[noreturn]] void throw_not_open(const std::optional<Address>& address, uint16_t port, int error) {
  const std::string where = address ? address->with_port(port).text() : fmt::format("port {}", port);
  switch (error) {
    case EADDRINUSE:
      throw Error::environment("{} of this host is in use by another program (ss -ltnp 'sport = :{}' shows which). Choose "
                               "another port, or port 0 for any free one.", where, port);
    case EACCES:
      throw Error::environment("may not listen on {}: ports below 1024 are for root. Choose a higher one.", where);
    case EADDRNOTAVAIL:
      throw Error::environment("cannot listen on {}: this host has no such address (ip address shows those it has).", where);
    default:
      throw Error::environment("cannot listen on {}: {}.", where, std::strerror(error));
  }
}

}  // namespace

std::optional<ListenSocket> ListenSocket::open_if_free(const std::optional<Address>& address, uint16_t port) {
  Opened opened = open_any(address, port);
  if (opened.error == EADDRINUSE) return std::nullopt;
  if (opened.error != 0) throw_not_open(address, port, opened.error);
  const Address local = Address::local_of(opened.fd.get());
  return ListenSocket(std::move(opened.fd), local);
}

ListenSocket ListenSocket::open(const std::optional<Address>& address, uint16_t port) {
  std::optional<ListenSocket> socket = open_if_free(address, port);
  if (!socket) throw_not_open(address, port, EADDRINUSE);
  return *std::move(socket);
}

Listener::Listener(EventLoop& loop, ListenSocket socket, OnAccept on_accept, OnProblem on_problem)
    : loop_(&loop), socket_(std::move(socket)), on_accept_(std::move(on_accept)), on_problem_(std::move(on_problem)) {
  watch();
}

Listener::~Listener() {
  loop_->cancel(pause_timer_);
  loop_->unwatch(socket_.fd());
}

void Listener::watch() {
  loop_->watch(socket_.fd(), EPOLLIN, [this](uint32_t) { accept_some(); });
}

void Listener::accept_some() {
  // A bound per round: a flood of connections must not keep the loop from its other work.
  constexpr int kPerRound = 64;
  for (int i = 0; i < kPerRound; ++i) {
    sockaddr_storage raw{};
    socklen_t size = sizeof raw;
    UniqueFd fd(::accept4(socket_.fd(), reinterpret_cast<sockaddr*>(&raw), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) {
      told_ = false;
      on_accept_(std::move(fd), Address::from_raw(raw));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return pause(errno);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Else the connection was gone before it was accepted; the next one may be well.
  }
}

void Listener::pause(int error) {
  if (!told_) {
    on_problem_(fmt::format("cannot accept connections on port {}: {}. Raise the limit on open files (ulimit -n).", port(),
                            std::strerror(error)));
  }
  told_ = true;
  loop_->unwatch(socket_.fd());
  pause_timer_ = loop_->after(Milliseconds(100), [this] { watch(); });
}

}  // namespace lockstep::net
