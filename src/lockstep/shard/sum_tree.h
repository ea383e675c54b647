#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

/// Sums of many terms on many ranks without a trace of who had which: the terms are added along a binary tree that their
/// number alone fixes. A rank that holds a run of consecutive terms can add up whole nodes of the tree; only the nodes
/// that no rank holds whole are left for everyone. Pure functions.
namespace lockstep::shard {

/// Terms [begin, end). Its children meet at middle().
struct TreeNode {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  int64_t middle() const { return begin + (size() + 1) / 2; }
  bool operator==(const TreeNode&) const = default;
};

/// The largest nodes of the tree over `num_terms` terms that lie in [begin, end) and hold at most `largest` terms, in
/// order; together they are exactly [begin, end). At most 2 log2(num_terms) of them when `largest` sets no limit.
std::vector<TreeNode> nodes_inside(int64_t num_terms, int64_t begin, int64_t end, int64_t largest);

/// out = the sum of `node`. `known(node, out)` fills in a node's sum and says so, or returns false: then its two
/// children are added, left + right. A node of one term must be known. `out` and all vectors have `out.size()` values.
void add_up(TreeNode node, std::span<double> out, const std::function<bool(TreeNode, std::span<double>)>& known);

}  // namespace lockstep::shard
