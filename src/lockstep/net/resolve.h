#pragma once

#include "lockstep/net/address.h"
#include "lockstep/net/event_loop.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::net {

/// What a look-up gave.
struct Resolved {
  enum class Outcome {
    Found,
    UnknownName,  ///< answered: there is no such name
    NoAnswer,     ///< no answer in time, or the name server is out of reach: worth another try
    Failed,       ///< anything else; `problem` says what
  };
  Outcome outcome = Outcome::Failed;
  std::vector<Address> addresses = {};  ///< in the system's order, without repeats, with the endpoint's port
  std::string problem = {};             ///< for people; empty when found
};

/// Asks the system (hosts file, DNS, ...), as long as that takes. Tests pass their own.
using Lookup = std::function<Resolved(const Endpoint& endpoint)>;
Resolved system_lookup(const Endpoint& endpoint);

/// Looks `endpoint` up and tells `done` on the loop's thread, never from inside the constructor. A numeric host is
/// answered without a look-up. The look-up runs in a thread of its own that is left behind when it does not answer
/// within `longest`, so nothing here can hang. Destroy it to cancel; `done` may destroy it.
class Resolver {
 public:
  using Done = std::function<void(Resolved resolved)>;
  Resolver(EventLoop& loop, const Endpoint& endpoint, Milliseconds longest, Done done, Lookup lookup = system_lookup);
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;
  ~Resolver();

 private:
  struct Shared;
  void finish(Resolved resolved);

  EventLoop* loop_;
  Done done_;
  std::shared_ptr<Shared> shared_;
  EventLoop::TimerId timer_ = 0;
};

/// The blocking form: returns at the latest at `deadline`, then with NoAnswer.
Resolved resolve(const Endpoint& endpoint, Deadline deadline, const Lookup& lookup = system_lookup);

}  // namespace lockstep::net
