#include "lockstep/rendezvous/hosting.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using ResolveOutcome = net::Resolved::Outcome;

net::Address at(std::string_view host) { return net::Address::parse(host, 0).value(); }

HostQuestion question(const std::string& endpoint_host, std::vector<net::Address> resolved) {
  HostQuestion question;
  question.endpoint = {endpoint_host, 29400};
  question.resolved = {.outcome = resolved.empty() ? ResolveOutcome::UnknownName : ResolveOutcome::Found,
                       .addresses = std::move(resolved),
                       .problem = "the name is unknown here"};
  question.local_addresses = {at("127.0.0.1"), at("10.77.0.2"), at("::1"), at("fd00::2")};
  question.host_name = "n2.cluster";
  return question;
}

TEST(ShouldHost, ComparesAddresses) {
  EXPECT_TRUE(should_host(question("n2", {at("10.77.0.2")})).host);
  EXPECT_TRUE(should_host(question("alias", {at("10.99.0.1"), at("fd00::2")})).host);
  EXPECT_FALSE(should_host(question("n1", {at("10.77.0.1")})).host);
  EXPECT_TRUE(should_host(question("localhost", {at("127.0.0.1")})).host);
  EXPECT_TRUE(should_host(question("n2", {at("127.0.1.1")})).host) << "as Debian's /etc/hosts has it";
  EXPECT_EQ(should_host(question("n1", {at("10.77.0.1")})).reason, "10.77.0.1 is no address of this host");
}

TEST(ShouldHost, NamesCountOnlyWhereTheyDoNotResolve) {
  EXPECT_TRUE(should_host(question("n2", {})).host);
  EXPECT_TRUE(should_host(question("N2.cluster", {})).host);
  EXPECT_FALSE(should_host(question("n2.other", {})).host);
  EXPECT_FALSE(should_host(question("n1", {})).host);
  EXPECT_FALSE(should_host(question("n2", {at("10.77.0.1")})).host) << "the name is here, the address is not";
}

TEST(ShouldHost, IsHostDecides) {
  HostQuestion told = question("n1", {at("10.77.0.1")});
  told.is_host = true;
  EXPECT_TRUE(should_host(told).host);
  told = question("n2", {at("10.77.0.2")});
  told.is_host = false;
  EXPECT_FALSE(should_host(told).host);
}

TEST(TryToHost, WhoComesSecondBecomesAClientOrTriesAgain) {
  HostQuestion first = question("localhost", {at("127.0.0.1")});
  first.endpoint.port = 0;
  const auto socket = try_to_host(first);
  ASSERT_TRUE(socket);
  HostQuestion second = first;
  second.endpoint.port = socket->port();
  EXPECT_FALSE(try_to_host(second));
  second.is_host = true;
  EXPECT_FALSE(try_to_host(second));
}

}  // namespace
}  // namespace lockstep::rendezvous
