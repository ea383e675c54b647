#include "lockstep/shard/sum_tree.h"

#include "lockstep/base/error.h"

namespace lockstep::shard {
namespace {

void collect_nodes(TreeNode node, TreeNode wanted, int64_t largest, std::vector<TreeNode>& found) {
  if (node.end <= wanted.begin || wanted.end <= node.begin || node.size() == 0) return;
  if (wanted.begin <= node.begin && node.end <= wanted.end && node.size() <= largest) {
    found.push_back(node);
    return;
  }
  collect_nodes({node.begin, node.middle()}, wanted, largest, found);
  collect_nodes({node.middle(), node.end}, wanted, largest, found);
}

}  // namespace

std::vector<TreeNode> nodes_inside(int64_t num_terms, int64_t begin, int64_t end, int64_t largest) {
  LS_CHECK(0 <= begin && begin <= end && end <= num_terms && largest >= 1, "[{}, {}) of {}, at most {}", begin, end,
           num_terms, largest);
  std::vector<TreeNode> found;
  collect_nodes({0, num_terms}, {begin, end}, largest, found);
  return found;
}

void add_up(TreeNode node, std::span<double> out, const std::function<bool(TreeNode, std::span<double>)>& known) {
  if (known(node, out)) return;
  LS_CHECK(node.size() > 1, "nobody knows term {}", node.begin);
  add_up({node.begin, node.middle()}, out, known);
  std::vector<double> right(out.size());
  add_up({node.middle(), node.end}, right, known);
  for (size_t i = 0; i < out.size(); ++i) out[i] += right[i];
}

}  // namespace lockstep::shard
