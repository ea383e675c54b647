#include "lockstep/rendezvous/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

net::Address address_of(std::string_view host) { return net::Address::parse(host, 0).value(); }

RankCandidate node(const std::string& name, std::optional<int> wanted = {}, std::optional<int> index = {},
                   std::string_view address = "10.0.0.1") {
  return {.host_name = name, .address = address_of(address), .wanted = wanted, .origin = "--node_rank", .index = index};
}

std::vector<std::string> order(const std::vector<RankCandidate>& nodes, int max_nodes) {
  std::vector<std::string> names;
  for (const size_t i : assign_ranks(nodes, max_nodes).order) names.push_back(nodes[i].host_name);
  return names;
}
using Names = std::vector<std::string>;

TEST(NaturalOrder, CountsDigits) {
  const Names sorted = {"", "10", "gpu-2", "gpu-10", "n", "n0", "n00", "n1", "n01", "n2", "n2a", "n2b10", "n10", "n10000000000000000000000", "x"};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j) {
      if (sorted[i] == "n1" || sorted[j] == "n1") continue;  // see below
      EXPECT_EQ(naturally_before(sorted[i], sorted[j]), i < j) << sorted[i] << " " << sorted[j];
    }
  }
  EXPECT_NE(naturally_before("n1", "n01"), naturally_before("n01", "n1")) << "equal numbers still have an order";
  EXPECT_FALSE(naturally_before("n1", "n1"));
}

TEST(Ranks, NaturalOrderOfHostNamesThenAddress) {
  EXPECT_EQ(order({node("n10"), node("n2"), node("n1")}, 3), (Names{"n1", "n2", "n10"}));
  const std::vector<RankCandidate> same = {node("host", {}, {}, "10.77.0.10"), node("host", {}, {}, "10.77.0.9")};
  EXPECT_EQ(assign_ranks(same, 2).order, (std::vector<size_t>{1, 0}));
}

TEST(Ranks, WantedRanksWin) {
  EXPECT_EQ(order({node("n1", 2), node("n2", 0), node("n3", 1)}, 3), (Names{"n2", "n3", "n1"}));
}

TEST(Ranks, NodesWithoutOneFillTheGaps) {
  EXPECT_EQ(order({node("n9"), node("n1", 1), node("n8"), node("n2", 3)}, 4), (Names{"n8", "n1", "n9", "n2"}));
}

TEST(Ranks, EqualOrImpossibleOnesAreIgnoredWithAWarning) {
  std::vector<RankCandidate> nodes = {node("n2", 0, {}, "10.0.0.2"), node("n1", 0), node("n3", 1)};
  const Ranks equal = assign_ranks(nodes, 3);
  EXPECT_EQ(order(nodes, 3), (Names{"n1", "n2", "n3"}));
  EXPECT_EQ(equal.warnings, Names{"the given node ranks are ignored, nodes are ordered by host name: n2 (10.0.0.2) and "
                                  "n1 (10.0.0.1) both have --node_rank 0."});
  nodes = {node("n2", 0), node("n1", 5)};
  EXPECT_EQ(order(nodes, 2), (Names{"n1", "n2"}));
  EXPECT_EQ(assign_ranks(nodes, 2).warnings, Names{"the given node ranks are ignored, nodes are ordered by host name: "
                                                   "--node_rank 5 of n1 (10.0.0.1) is not below the number of nodes, 2."});
}

TEST(Ranks, FewerNodesThanRanksAreCountedWithoutGaps) {
  const std::vector<RankCandidate> nodes = {node("n1", 3), node("n2", 1)};
  EXPECT_EQ(order(nodes, 4), (Names{"n2", "n1"}));
  EXPECT_EQ(assign_ranks(nodes, 4).index, (std::vector<int>{0, 1}));
}

TEST(Ranks, TheOrderStaysOverRestarts) {
  // Round 1 was z (0), y (1), x (2); y is lost, a comes.
  const std::vector<RankCandidate> nodes = {node("x", {}, 2), node("a"), node("z", {}, 0)};
  EXPECT_EQ(order(nodes, 3), (Names{"z", "a", "x"}));
  EXPECT_EQ(assign_ranks(nodes, 3).index, (std::vector<int>{0, 1, 2}));
  const std::vector<RankCandidate> left = {node("x", {}, 2), node("z", {}, 0)};
  EXPECT_EQ(assign_ranks(left, 3).index, (std::vector<int>{0, 2})) << "the index stays where nobody takes the gap";
}

TEST(Ranks, ANewcomerDoesNotTakeAnOldOnesPlace) {
  const std::vector<RankCandidate> nodes = {node("x", {}, 1), node("z", {}, 0), node("a", 1)};
  EXPECT_EQ(order(nodes, 3), (Names{"z", "x", "a"}));
}

TEST(StaticRanks, RefuseNamingBothHosts) {
  const std::vector<RankCandidate> present = {node("n1", 0), node("n3")};
  EXPECT_EQ(static_rank_problem(present, node("n2", 0, {}, "10.0.0.2"), 3),
            "n1 (10.0.0.1) and n2 (10.0.0.2) both have --node_rank 0. Give each node a rank of its own from 0 to 2.");
  EXPECT_EQ(static_rank_problem(present, node("n2", 3, {}, "10.0.0.2"), 3),
            "--node_rank 3 of n2 (10.0.0.2) is not below the number of nodes, 3. Give each node a rank of its own from 0 to 2.");
  EXPECT_EQ(static_rank_problem(present, node("n2", 2), 3), "");
  EXPECT_EQ(static_rank_problem(present, node("n2"), 3), "");
}

TEST(StaticRanks, MissingOnesAreListed) {
  EXPECT_EQ(missing_ranks(std::vector<RankCandidate>{node("n1", 2)}, 4), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(missing_ranks(std::vector<RankCandidate>{node("n1", 2), node("n2")}, 4), (std::vector<int>{1, 3}));
  EXPECT_EQ(missing_ranks(std::vector<RankCandidate>{node("n1", {}, 0)}, 2), (std::vector<int>{1}));
}

TEST(ReachableAddress, IsLocalAddrThenWhatIsSeenThenWhereTheOthersCame) {
  const SeenAddress host{.peer = address_of("127.0.0.1"), .local = address_of("127.0.0.1")};
  const SeenAddress other{.peer = address_of("10.77.0.2"), .local = address_of("10.77.0.1")};
  const SeenAddress third{.peer = address_of("10.88.0.3"), .local = address_of("10.88.0.1")};
  const SeenAddress fourth{.peer = address_of("10.77.0.4"), .local = address_of("10.77.0.1")};
  SeenAddress named = other;
  named.local_addr = "ib0.node2";
  EXPECT_EQ(reachable_address(std::vector{host, other}, 1), "10.77.0.2");
  EXPECT_EQ(reachable_address(std::vector{host, named}, 1), "ib0.node2");
  EXPECT_EQ(reachable_address(std::vector{host, third, other, fourth}, 0), "10.77.0.1") << "by most of the others";
  EXPECT_EQ(reachable_address(std::vector{host, host}, 1), "127.0.0.1") << "all on one host";
}

}  // namespace
}  // namespace lockstep::rendezvous
