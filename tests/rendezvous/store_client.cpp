#include "rendezvous/store_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

namespace lockstep::rendezvous {
namespace {

constexpr Milliseconds kLongest{10'000};

}  // namespace

std::string from_hex(std::string_view text) {
  std::string digits;
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits), [](char c) { return c != ' '; });
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    uint8_t byte = 0;
    std::from_chars(digits.data() + i, digits.data() + i + 2, byte, 16);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

StoreCommand command(StoreOp op, std::vector<std::string> keys, std::vector<std::string> values, int64_t number) {
  return {.op = op, .keys = std::move(keys), .values = std::move(values), .number = number};
}

std::string bytes_of(StoreOp op, std::vector<std::string> keys, std::vector<std::string> values, int64_t number) {
  return encode(command(op, std::move(keys), std::move(values), number));
}

std::string i64(int64_t number) {
  std::string out;
  put_i64(out, number);
  return out;
}

std::string blob(std::string_view bytes) {
  std::string out;
  put_blob(out, bytes);
  return out;
}

std::string greeting(uint32_t nonce) {
  std::string out = from_hex("00 cef7853c 0d");
  put_u32(out, nonce);
  return out;
}

RawClient::RawClient(net::EventLoop& loop, const net::Address& server)
    : loop_(&loop), fd_(::socket(server.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const net::Address::Raw raw = server.raw();
  const int on = 1;
  EXPECT_EQ(::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
  EXPECT_EQ(::connect(fd_.get(), raw.get(), raw.size), 0) << server.text();
}

size_t RawClient::send_some(std::string_view bytes) {
  const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent < 0 ? 0 : static_cast<size_t>(sent);
}

void RawClient::send(std::string_view bytes) {
  const Deadline deadline = Deadline::in(kLongest);
  while (!bytes.empty() && !deadline.passed()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return;  // closed: whoever expects a reply will say so
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    loop_->run_once(Milliseconds(0));
  }
  EXPECT_TRUE(bytes.empty()) << bytes.size() << " bytes could not be sent";
}

std::string RawClient::receive(size_t size) {
  std::string got;
  const Deadline deadline = Deadline::in(kLongest);
  std::array<char, 64 * 1024> buffer;
  while (got.size() < size && !deadline.passed()) {
    const ssize_t count = ::recv(fd_.get(), buffer.data(), std::min(buffer.size(), size - got.size()), MSG_DONTWAIT);
    if (count > 0) {
      got.append(buffer.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno != EAGAIN) {
      break;
    } else {
      loop_->run_once(Milliseconds(1));
    }
  }
  return got;
}

void RawClient::greet() { EXPECT_EQ(to_hex(ask(greeting(0x01020304), 4)), "04030201"); }

bool RawClient::nothing_waits() {
  return ask(bytes_of(StoreOp::Ping, {}, {}, 0x5A5AA5A5), 4) == from_hex("a5a55a5a");
}

bool RawClient::is_closed() {
  const Deadline deadline = Deadline::in(kLongest);
  std::array<char, 64 * 1024> buffer;
  while (!deadline.passed()) {
    const ssize_t count = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return true;
    if (count < 0) loop_->run_once(Milliseconds(1));
  }
  return false;
}

void RawClient::shut_down() { fd_.reset(); }

namespace {

std::vector<net::ListenSocket> loopback() {
  std::vector<net::ListenSocket> sockets;
  sockets.push_back(net::ListenSocket::open(net::Address::loopback_v4(0), 0));
  return sockets;
}

}  // namespace

StoreRig::StoreRig(const StoreServer::Limits& limits, StoreServer::Allowed allowed)
    : server(loop, loopback(), limits, std::move(allowed), [this](const std::string& line) { log.push_back(line); }) {}

StoreServer::Allowed StoreRig::anybody() {
  return [](const net::Address&) { return true; };
}

RawClient StoreRig::client() {
  RawClient client(loop, net::Address::loopback_v4(server.port()));
  client.greet();
  return client;
}

bool StoreRig::logged(std::string_view part) const {
  return std::any_of(log.begin(), log.end(),
                     [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

}  // namespace lockstep::rendezvous
