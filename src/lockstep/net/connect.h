#pragma once

#include "lockstep/net/address.h"
#include "lockstep/net/event_loop.h"

#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::net {

enum class ConnectFailure {
  None,
  Refused,      ///< the host is up and nothing listens there
  Unreachable,  ///< no route, or the host does not answer on its own network
  NoAnswer,     ///< packets vanish: a firewall, or a host that is down
  Other,
};

struct Connected {
  UniqueFd fd{};  ///< non-blocking, without Nagle's delay; -1 on failure
  Address local = {};
  Address peer = {};
  ConnectFailure failure = ConnectFailure::None;  ///< of several addresses: the one that tells most
  std::string problem = {};                       ///< for people: each address with what happened
};

/// Connects to one of several addresses of a host and tells `done` on the loop, never from inside the constructor. IPv6
/// and IPv4 take turns in the order given; each gets `head_start` before the next one is tried beside it, or less when
/// it fails sooner; the first that answers wins. Destroy it to cancel; `done` may destroy it.
class Connector {
 public:
  using Done = std::function<void(Connected connected)>;
  Connector(EventLoop& loop, std::vector<Address> targets, Milliseconds longest, Done done,
            Milliseconds head_start = Milliseconds(250));
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  ~Connector() { stop(); }

 private:
  struct Attempt {
    UniqueFd fd;
    Address target;
  };
  void start_next();
  void on_writable(std::list<Attempt>::iterator attempt);
  void failed(const Address& target, ConnectFailure failure, std::string_view text);
  void give_up();
  void finish(Connected connected);
  void stop();

  EventLoop* loop_;
  std::vector<Address> targets_;
  size_t next_ = 0;
  std::list<Attempt> attempts_;
  Milliseconds longest_;
  Milliseconds head_start_;
  Done done_;
  EventLoop::TimerId next_timer_ = 0;
  EventLoop::TimerId deadline_timer_ = 0;
  ConnectFailure failure_ = ConnectFailure::None;
  std::string problem_;
};

/// The order in which addresses are tried: families in turn, beginning with the first address's.
std::vector<Address> in_turns(const std::vector<Address>& addresses);

/// For control connections, which carry little: no delay for small messages, and under loss retransmissions that back off
/// to 1 s at most (Linux 6.15 and newer) or not at all for the first six (older). Best effort.
void tune_for_control(int fd);

}  // namespace lockstep::net
