#include "lockstep/net/address.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::net {
namespace {

Address parsed(std::string_view host, uint16_t port = 0) { return Address::parse(host, port).value(); }

std::string refusal(std::string_view text) {
  try {
    Endpoint::parse(text, std::nullopt, "--rdzv_endpoint");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  ADD_FAILURE() << text << " was taken";
  return {};
}

TEST(Address, ParsesAndPrintsBothFamilies) {
  EXPECT_EQ(parsed("10.0.0.1", 29500).text(), "10.0.0.1:29500");
  EXPECT_EQ(parsed("::1", 29500).text(), "[::1]:29500");
  EXPECT_EQ(parsed("fd00:0:0::5", 1).host(), "fd00::5");
  for (const std::string_view bad : {"", "node1", "10.0.0", "10.0.0.1.2", "[::1]", "fe80::1%no_such_interface", "1:2"}) {
    EXPECT_FALSE(Address::parse(bad, 1)) << bad;
  }
}

TEST(Address, FoldsMappedAddressesIntoIPv4) {
  EXPECT_EQ(parsed("::ffff:10.0.0.1", 7), parsed("10.0.0.1", 7));
  const Address address = parsed("10.0.0.1", 7);
  EXPECT_EQ(Address::from_raw(address.raw_v6().storage), address) << "and back";
}

TEST(Address, RawFormsRoundTrip) {
  for (const Address& address : {parsed("10.0.0.1", 7), parsed("fd00::5", 65535), Address::any_v4(1), Address::any_v6(2)}) {
    EXPECT_EQ(Address::from_raw(address.raw().storage), address) << address.text();
  }
}

TEST(Address, ComparesHostsWithoutPorts) {
  EXPECT_TRUE(parsed("10.0.0.1", 1).same_host(parsed("10.0.0.1", 2)));
  EXPECT_FALSE(parsed("10.0.0.1", 1).same_host(parsed("10.0.0.2", 1)));
  EXPECT_FALSE(parsed("0.0.0.0").same_host(parsed("::")));
}

TEST(Address, KnowsLoopbackAndAny) {
  for (const std::string_view host : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(parsed(host).is_loopback()) << host;
  }
  EXPECT_FALSE(parsed("128.0.0.1").is_loopback());
  EXPECT_FALSE(parsed("::2").is_loopback());
  EXPECT_TRUE(parsed("0.0.0.0").is_any());
  EXPECT_TRUE(parsed("::").is_any());
  EXPECT_FALSE(parsed("::1").is_any());
}

TEST(Endpoint, RefusesWhatCanBeNoHostName) {
  EXPECT_EQ(refusal("-1:29500"), "--rdzv_endpoint = -1:29500: '-1' is no host name: names begin with a letter or a digit. "
                                 "Write node1:29500 or 10.0.0.1:29500.");
  EXPECT_NE(refusal(".n1").find("'.n1' is no host name"), std::string::npos);
  EXPECT_NE(refusal("--node_rank").find("'--node_rank' is no host name"), std::string::npos);
}

TEST(Endpoint, ParsesWhatUsersWrite) {
  const auto parse = [](std::string_view text) { return Endpoint::parse(text, 29400, "--rdzv_endpoint"); };
  EXPECT_EQ(parse("node1:29500"), (Endpoint{"node1", 29500}));
  EXPECT_EQ(parse("node1"), (Endpoint{"node1", 29400}));
  EXPECT_EQ(parse("localhost:0"), (Endpoint{"localhost", 0}));
  EXPECT_EQ(parse("10.0.0.1:1"), (Endpoint{"10.0.0.1", 1}));
  EXPECT_EQ(parse("[fd00::1]:29500"), (Endpoint{"fd00::1", 29500}));
  EXPECT_EQ(parse("[fd00::1]"), (Endpoint{"fd00::1", 29400}));
  EXPECT_EQ(parse("fd00::1"), (Endpoint{"fd00::1", 29400}));
  EXPECT_EQ(parse("a-b_c.d:5").text(), "a-b_c.d:5");
  EXPECT_EQ(parse("fd00::1").text(), "[fd00::1]:29400");
}

TEST(Endpoint, RefusesWithTheValueAndTheRemedy) {
  EXPECT_EQ(refusal("node1"), "--rdzv_endpoint = node1: the port is missing. Write node1:29500.");
  EXPECT_EQ(refusal("node1:70000"),
            "--rdzv_endpoint = node1:70000: '70000' is not a port. Use a number from 1 to 65535, or 0 for any free one.");
  for (const std::string_view bad : {"", ":29500", "http://node1:29500", "[::1", "[::1]x", "a b:1", "node1/2:1", "node1:29500:1",
                                     "[::1]]:1", "[node1", "node1]:1", "%", "node1%eth0:1", "fe80::1%", "1:2:3", "[]:1", "[1:2]:3"}) {
    EXPECT_NE(refusal(bad).find("is not host:port"), std::string::npos) << refusal(bad);
  }
  for (const std::string_view bad : {"node1:", "node1:x", "node1:-1", "node1:+1", "node1:1x", "[::1]:"}) {
    EXPECT_NE(refusal(bad).find("is not a port"), std::string::npos) << refusal(bad);
  }
}

TEST(Endpoint, TellsWhetherTheTextHasAPort) {
  EXPECT_TRUE(Endpoint::read("node1:5", 7).has_port);
  EXPECT_FALSE(Endpoint::read("node1", 7).has_port);
  EXPECT_FALSE(Endpoint::read("[::1]", 7).has_port);
  EXPECT_FALSE(Endpoint::read("fe80::1%anywhere", 7).has_port) << "whether or not there is such an interface";
  EXPECT_EQ(Endpoint::read("fe80::1%anywhere", 7).endpoint, (Endpoint{"fe80::1%anywhere", 7}));
  EXPECT_EQ(Endpoint::read("fd00::1", {}).problem, "the port is missing. Write [fd00::1]:29500.");
}

TEST(LocalAddresses, ContainLoopbackWithoutRepeats) {
  const std::vector<Address> addresses = local_addresses();
  EXPECT_TRUE(std::any_of(addresses.begin(), addresses.end(), [](const Address& a) { return a.is_loopback(); }));
  EXPECT_TRUE(std::is_sorted(addresses.begin(), addresses.end()));
  EXPECT_EQ(std::adjacent_find(addresses.begin(), addresses.end()), addresses.end());
}

}  // namespace
}  // namespace lockstep::net
