#include "lockstep/net/datagram.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>

namespace lockstep::net {

std::optional<DatagramSocket> DatagramSocket::open(const Address& local) {
  UniqueFd fd(::socket(local.is_v6() ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int off = 0;
  const Address::Raw raw = local.raw();
  if (fd.get() < 0 ||
      (local.is_v6() && ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
      ::bind(fd.get(), raw.get(), raw.size) != 0) {
    return std::nullopt;
  }
  return DatagramSocket(std::move(fd), local.is_v6());
}

void DatagramSocket::start(EventLoop& loop, OnDatagram on_datagram) {
  loop_ = &loop;
  loop.watch(fd_.get(), EPOLLIN, [fd = fd_.get(), tell = std::move(on_datagram)](uint32_t) {
    // A bound per round, as a stranger may send faster than anybody can read.
    constexpr int kPerRound = 256;
    std::array<char, kMaxBytes> buffer;
    for (int i = 0; i < kPerRound; ++i) {
      sockaddr_storage raw{};
      socklen_t size = sizeof raw;
      const ssize_t got = ::recvfrom(fd, buffer.data(), buffer.size(), MSG_TRUNC, reinterpret_cast<sockaddr*>(&raw), &size);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got < 0 || static_cast<size_t>(got) > buffer.size()) continue;
      tell({buffer.data(), static_cast<size_t>(got)}, Address::from_raw(raw));
    }
  });
}

void DatagramSocket::stop() {
  if (loop_ != nullptr && fd_.get() >= 0) loop_->unwatch(fd_.get());
  loop_ = nullptr;
}

void DatagramSocket::send_to(std::string_view bytes, const Address& to) {
  const Address::Raw raw = v6_ ? to.raw_v6() : to.raw();
  ::sendto(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL, raw.get(), raw.size);
}

}  // namespace lockstep::net
