#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/optim/adafactor.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/shard/sum_tree.h"
#include "lockstep/tensor/param_layout.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::shard {

/// Adafactor's row and column states of all matrices. Every rank holds all of them: they are as long as a side of the
/// matrix. Their means over a matrix are sums of doubles along SumTree (columns) or piece by piece (rows), so the same
/// bits on any number of ranks and threads; ranks exchange a few nodes of the tree, not their gradients.
class FactoredMoments {
 public:
  /// GradAccumulator::gradient(), for pieces of this rank.
  using GradSource = std::function<std::span<const float>(int segment, int64_t piece, std::span<float> room)>;

  /// Keeps references to all arguments.
  FactoredMoments(const tensor::ParamLayout& layout, comm::Communicator& comm, ThreadTeam& team);

  /// Collective. Takes the squares of an update's gradients into the states and computes the factors.
  void take(const optim::OptimizerStep& step, const GradSource& grads);

  /// Of a matrix. Float32, one dimension: optim::MatrixShape::num_rows() and num_columns() values.
  const at::Tensor& row(tensor::ParamId id) const { return of(id).row; }
  const at::Tensor& column(tensor::ParamId id) const { return of(id).column; }
  const optim::MatrixShape& shape(tensor::ParamId id) const { return of(id).shape; }
  /// Of the last take().
  std::span<const float> row_factors(tensor::ParamId id) const { return of(id).row_factors; }
  std::span<const float> column_factors(tensor::ParamId id) const { return of(id).column_factors; }

  int64_t state_bytes() const;

 private:
  struct Matrix {
    tensor::ParamId id = -1;
    optim::MatrixShape shape;
    int64_t num_pieces = 0;
    std::vector<TreeNode> nodes;          ///< of all ranks, in order: every piece is in exactly one
    int64_t first_own = 0, num_own = 0;   ///< this rank's among them
    int64_t columns_at = 0, rows_at = 0;  ///< where its sums begin in the exchanged buffer
    at::Tensor row, column;
    std::vector<float> row_factors, column_factors;
  };
  /// At most kTaskPieces pieces of one matrix that this rank holds.
  struct Task {
    size_t matrix = 0;
    TreeNode node;
    std::vector<double> columns;       ///< their sum
  };

  const Matrix& of(tensor::ParamId id) const;
  void add_matrix(tensor::ParamId id);
  void run_task(Task& task, const optim::OptimizerStep& step, const GradSource& grads, std::span<double> buffer) const;
  void add_own_nodes(const Matrix& matrix, std::span<const Task> tasks, std::span<double> buffer) const;
  void average(Matrix& matrix, const optim::OptimizerStep& step, std::span<const double> buffer) const;

  const tensor::ParamLayout& layout_;
  comm::Communicator& comm_;
  ThreadTeam& team_;
  std::vector<Matrix> matrices_;
  std::vector<int> index_;             ///< by parameter; -1 for vectors
  std::vector<Task> tasks_;            ///< in the order of matrices_ and pieces
  std::vector<size_t> first_task_;     ///< by matrix, and the end
  int64_t buffer_size_ = 0;
};

}  // namespace lockstep::shard
