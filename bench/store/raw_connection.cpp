#include "raw_connection.h"

#include "lockstep/net/address.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace lockstep::bench {
namespace {

[[noreturn]] void fail(const char* what) { throw std::runtime_error(std::string(what) + ": " + std::strerror(errno)); }

}  // namespace

RawConnection::RawConnection(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const net::Address::Raw raw = net::Address::loopback_v4(port).raw();
  const int on = 1;
  if (::connect(fd_, raw.get(), raw.size) != 0) fail("connect");
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

RawConnection::~RawConnection() { ::close(fd_); }

void RawConnection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) fail("send");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string_view RawConnection::receive(size_t size) {
  buffer_.resize(size);
  for (size_t got = 0; got < size;) {
    const ssize_t count = ::recv(fd_, buffer_.data() + got, size - got, 0);
    if (count <= 0) fail("receive");
    got += static_cast<size_t>(count);
  }
  return buffer_;
}

}  // namespace lockstep::bench
