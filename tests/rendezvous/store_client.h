#pragma once

#include "lockstep/net/event_loop.h"
#include "lockstep/rendezvous/store_server.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rendezvous {

/// "00 cef7853c" -> bytes; blanks are ignored.
std::string from_hex(std::string_view text);
std::string to_hex(std::string_view bytes);

StoreCommand command(StoreOp op, std::vector<std::string> keys = {}, std::vector<std::string> values = {},
                     int64_t number = 0);
/// The bytes of command().
std::string bytes_of(StoreOp op, std::vector<std::string> keys = {}, std::vector<std::string> values = {},
                     int64_t number = 0);
std::string i64(int64_t number);
std::string blob(std::string_view bytes);
/// VALIDATE and PING, as a client sends them on connecting.
std::string greeting(uint32_t nonce);

/// A client that speaks bytes. Whatever it waits for it waits for on the loop's own thread, at most ten seconds.
class RawClient {
 public:
  RawClient(net::EventLoop& loop, const net::Address& server);

  void send(std::string_view bytes);
  /// What can be sent without running the loop.
  size_t send_some(std::string_view bytes);
  /// Fewer bytes when the connection ends.
  std::string receive(size_t size);
  std::string ask(std::string_view bytes, size_t reply_size) {
    send(bytes);
    return receive(reply_size);
  }
  void greet();
  /// A PING comes back as the next thing: the server has sent nothing else up to here.
  bool nothing_waits();
  /// The server has closed; bytes it sent before are dropped.
  bool is_closed();
  void shut_down();
  int fd() const { return fd_.get(); }
  net::Address local() const { return net::Address::local_of(fd_.get()); }

 private:
  net::EventLoop* loop_;
  UniqueFd fd_;
};

/// A server on a loopback address, its loop and what it logged.
struct StoreRig {
  explicit StoreRig(const StoreServer::Limits& limits = {}, StoreServer::Allowed allowed = anybody());
  static StoreServer::Allowed anybody();

  /// Connected and greeted.
  RawClient client();
  /// Runs the loop until `done`, at most ten seconds.
  template <class Done>
  bool run_until(Done done) {
    const Deadline deadline = Deadline::in(Milliseconds(10'000));
    while (!done() && !deadline.passed()) loop.run_once(deadline.remaining());
    return done();
  }
  bool logged(std::string_view part) const;

  net::EventLoop loop;
  std::vector<std::string> log;
  StoreServer server;
};

}  // namespace lockstep::rendezvous
