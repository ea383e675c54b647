#include "lockstep/shard/sum_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::shard {
namespace {

constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();

TEST(SumTree, NodesCoverExactlyWhatIsAskedFor) {
  for (const int64_t terms : {1, 2, 5, 64, 100}) {
    for (int64_t begin = 0; begin <= terms; ++begin) {
      for (int64_t end = begin; end <= terms; ++end) {
        for (const int64_t largest : {int64_t{1}, int64_t{8}, kAnySize}) {
          int64_t at = begin;
          const std::vector<TreeNode> nodes = nodes_inside(terms, begin, end, largest);
          for (const TreeNode node : nodes) {
            EXPECT_EQ(node.begin, at);
            EXPECT_LE(node.size(), largest);
            at = node.end;
          }
          EXPECT_EQ(at, end);
          if (largest == kAnySize) {
            EXPECT_LE(nodes.size(), static_cast<size_t>(2 * std::bit_width(static_cast<uint64_t>(terms))));
          }
        }
      }
    }
  }
  EXPECT_EQ(nodes_inside(100, 0, 100, kAnySize), (std::vector<TreeNode>{{0, 100}}));
}

TEST(SumTree, TheSumHasTheSameBitsHoweverItIsDealt) {
  constexpr int64_t kTerms = 77;
  const auto term = [](int64_t index) { return std::sin(static_cast<double>(index)) * std::exp2(index % 40); };
  const auto leaf = [&](TreeNode node, std::span<double> out) {
    if (node.size() == 1) out[0] = term(node.begin);
    return node.size() == 1;
  };
  std::vector<double> whole(1), in_order(1, 0);
  add_up({0, kTerms}, whole, leaf);
  for (int64_t index = 0; index < kTerms; ++index) in_order[0] += term(index);
  EXPECT_NE(whole, in_order) << "these terms must show their order";
  EXPECT_NEAR(whole[0], in_order[0], 1e-3);
  for (int64_t owners = 1; owners <= 9; ++owners) {
    const int64_t share = (kTerms + owners - 1) / owners;
    std::vector<TreeNode> nodes;
    std::vector<double> sums;
    for (int64_t begin = 0; begin < kTerms; begin += share) {
      for (const TreeNode node : nodes_inside(kTerms, begin, std::min(kTerms, begin + share), kAnySize)) {
        std::vector<double> sum(1);
        add_up(node, sum, leaf);
        nodes.push_back(node);
        sums.push_back(sum[0]);
      }
    }
    std::vector<double> dealt(1);
    add_up({0, kTerms}, dealt, [&](TreeNode node, std::span<double> out) {
      const auto found = std::find(nodes.begin(), nodes.end(), node);
      if (found == nodes.end()) return false;
      out[0] = sums[static_cast<size_t>(found - nodes.begin())];
      return true;
    });
    EXPECT_EQ(dealt, whole) << owners << " owners";
  }
}

}  // namespace
}  // namespace lockstep::shard
