#include "lockstep/net/resolve.h"

#include "turning.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

namespace lockstep::net {
namespace {

using namespace std::chrono_literals;
using Outcome = Resolved::Outcome;

/// Resolves on a loop.
Resolved on_loop(const Endpoint& endpoint, Milliseconds longest, Lookup lookup) {
  EventLoop loop;
  std::optional<Resolved> result;
  std::unique_ptr<Resolver> resolver;
  resolver = std::make_unique<Resolver>(
      loop, endpoint, longest,
      [&](Resolved resolved) {
        result = std::move(resolved);
        resolver.reset();
      },
      std::move(lookup));
  EXPECT_FALSE(result) << "told from inside the constructor";
  EXPECT_TRUE(turn_until(loop, [&] { return result.has_value(); }));
  return result.value_or(Resolved{});
}

Resolved both(const Endpoint& endpoint, Milliseconds longest, const Lookup& lookup) {
  const Resolved blocking = resolve(endpoint, Deadline::in(longest), lookup);
  const Resolved looping = on_loop(endpoint, longest, lookup);
  EXPECT_EQ(blocking.outcome, looping.outcome);
  EXPECT_EQ(blocking.problem, looping.problem);
  EXPECT_EQ(blocking.addresses, looping.addresses);
  return blocking;
}

TEST(Resolve, NumericHostsAreNeverLookedUp) {
  const Lookup never = [](const Endpoint&) -> Resolved {
    ADD_FAILURE() << "looked up";
    return {};
  };
  EXPECT_EQ(both({"10.0.0.1", 5}, 5s, never).addresses.at(0).text(), "10.0.0.1:5");
  EXPECT_EQ(both({"::1", 5}, 5s, never).addresses.at(0).text(), "[::1]:5");
}

TEST(Resolve, AsksTheSystem) {
  const Resolved resolved = both({"localhost", 77}, 5s, system_lookup);
  ASSERT_EQ(resolved.outcome, Outcome::Found) << resolved.problem;
  for (const Address& address : resolved.addresses) {
    EXPECT_TRUE(address.is_loopback()) << address.text();
    EXPECT_EQ(address.port(), 77);
  }
}

TEST(Resolve, ALookupThatHangsIsLeftBehind) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  const Lookup hanging = [released](const Endpoint&) {
    released.wait();
    return Resolved{.outcome = Outcome::Found};
  };
  const Clock::time_point start = Clock::now();
  const Resolved resolved = both({"slow-node", 1}, 20ms, hanging);
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_EQ(resolved.outcome, Outcome::NoAnswer);
  EXPECT_NE(resolved.problem.find("'slow-node' was not answered in time"), std::string::npos) << resolved.problem;
  release.set_value();
}

TEST(Resolve, MayBeCancelledWhileItLooks) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  EventLoop loop;
  {
    const Resolver resolver(
        loop, {"node", 1}, 60s, [](Resolved) { ADD_FAILURE() << "told after its end"; },
        [released](const Endpoint&) {
          released.wait();
          return Resolved{};
        });
  }
  release.set_value();
  loop.run_once(20ms);
  EXPECT_EQ(loop.until_next_timer(99s), 99s) << "its timer is left";
}

TEST(Resolve, UnknownNamesAreTold) {
  // ".invalid" never exists (RFC 6761); a host without name servers may not be able to tell.
  const Resolved resolved = resolve({"no-such-node.invalid", 1}, Deadline::in(8s));
  EXPECT_TRUE(resolved.outcome == Outcome::UnknownName || resolved.outcome == Outcome::NoAnswer) << resolved.problem;
  EXPECT_NE(resolved.problem.find("'no-such-node.invalid'"), std::string::npos) << resolved.problem;
}

}  // namespace
}  // namespace lockstep::net
