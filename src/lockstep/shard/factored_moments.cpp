#include "lockstep/shard/factored_moments.h"

#include "lockstep/base/error.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <limits>

namespace lockstep::shard {
namespace {

using tensor::kPieceElements;

/// What a thread takes at a time: 1 MiB of float32 gradients.
constexpr int64_t kTaskPieces = 64;

std::span<float> values_of(at::Tensor& flat) {
  return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())};
}

}  // namespace

FactoredMoments::FactoredMoments(const tensor::ParamLayout& layout, comm::Communicator& comm, ThreadTeam& team)
    : layout_(layout), comm_(comm), team_(team), index_(static_cast<size_t>(layout.num_params()), -1) {
  for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
    if (layout.spec(id).is_matrix()) add_matrix(id);
  }
  first_task_.push_back(tasks_.size());
}

void FactoredMoments::add_matrix(tensor::ParamId id) {
  const tensor::ParamSlot& slot = layout_.slot(id);
  Matrix matrix;
  matrix.id = id;
  matrix.shape = optim::MatrixShape::of(layout_.spec(id).shape);
  matrix.num_pieces = slot.num_pieces();
  matrix.row = at::zeros({matrix.shape.num_rows()}, at::kFloat);
  matrix.column = at::zeros({matrix.shape.num_columns()}, at::kFloat);
  index_[static_cast<size_t>(id)] = static_cast<int>(matrices_.size());
  first_task_.push_back(tasks_.size());

  const int64_t share = layout_.shard_pieces(slot.segment, comm_.size());
  const int64_t first_piece = slot.offset / kPieceElements;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const int64_t begin = std::clamp<int64_t>(share * rank - first_piece, 0, matrix.num_pieces);
    const int64_t end = std::clamp<int64_t>(share * (rank + 1) - first_piece, 0, matrix.num_pieces);
    const auto nodes = nodes_inside(matrix.num_pieces, begin, end, std::numeric_limits<int64_t>::max());
    if (rank == comm_.rank()) {
      matrix.first_own = static_cast<int64_t>(matrix.nodes.size());
      matrix.num_own = static_cast<int64_t>(nodes.size());
      for (const TreeNode node : nodes_inside(matrix.num_pieces, begin, end, kTaskPieces)) {
        tasks_.push_back({.matrix = matrices_.size(), .node = node, .columns = {}});
      }
    }
    matrix.nodes.insert(matrix.nodes.end(), nodes.begin(), nodes.end());
  }
  matrix.columns_at = buffer_size_;
  buffer_size_ += static_cast<int64_t>(matrix.nodes.size()) * matrix.shape.num_columns();
  matrix.rows_at = buffer_size_;
  buffer_size_ += matrix.shape.num_rows() + matrix.num_pieces;
  matrices_.push_back(std::move(matrix));
}

const FactoredMoments::Matrix& FactoredMoments::of(tensor::ParamId id) const {
  const int index = index_[static_cast<size_t>(id)];
  LS_CHECK(index >= 0, "{} is no matrix", layout_.spec(id).name);
  return matrices_[static_cast<size_t>(index)];
}

void FactoredMoments::take(const optim::OptimizerStep& step, const GradSource& grads) {
  if (matrices_.empty()) return;
  // One rank writes each double, the others leave zero bits: the int64 sum of bit patterns is an exchange, and exact.
  at::Tensor exchanged = at::zeros({buffer_size_}, at::kLong);
  const std::span<double> buffer(static_cast<double*>(exchanged.data_ptr()), static_cast<size_t>(buffer_size_));
  team_.run(tasks_.size(), [&](size_t item, int) { run_task(tasks_[item], step, grads, buffer); });
  team_.run(matrices_.size(), [&](size_t item, int) {
    const std::span<const Task> tasks(tasks_);
    add_own_nodes(matrices_[item], tasks.subspan(first_task_[item], first_task_[item + 1] - first_task_[item]), buffer);
  });
  comm_.all_reduce_sum(exchanged, "row and column sums of squares");
  team_.run(matrices_.size(), [&](size_t item, int) { average(matrices_[item], step, buffer); });
}

void FactoredMoments::run_task(Task& task, const optim::OptimizerStep& step, const GradSource& grads,
                               std::span<double> buffer) const {
  const Matrix& matrix = matrices_[task.matrix];
  const tensor::ParamSlot& slot = layout_.slot(matrix.id);
  std::array<float, static_cast<size_t>(kPieceElements)> room;
  std::vector<double> rows(static_cast<size_t>(optim::rows_touched(0, kPieceElements, matrix.shape) + 1));
  const auto add_piece = [&](TreeNode node, std::span<double> columns) {
    if (node.size() > 1) return false;
    const int64_t begin = node.begin * kPieceElements;
    const int64_t count = std::min(kPieceElements, slot.numel - begin);
    const std::span<const float> values = grads(slot.segment, slot.offset / kPieceElements + node.begin,
                                                std::span(room).first(static_cast<size_t>(count)));
    std::fill(columns.begin(), columns.end(), 0.0);
    const int64_t touched = optim::add_squares(values, begin, matrix.shape, step.grad_scale, columns, rows);
    // Going along the tensor, row + piece grows with every row part: each part has a place of its own.
    const auto at = static_cast<size_t>(matrix.rows_at + begin / matrix.shape.cols + node.begin);
    std::copy_n(rows.begin(), touched, buffer.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  };
  task.columns.resize(static_cast<size_t>(matrix.shape.num_columns()));
  add_up(task.node, task.columns, add_piece);
}

void FactoredMoments::add_own_nodes(const Matrix& matrix, std::span<const Task> tasks,
                                    std::span<double> buffer) const {
  const auto width = static_cast<size_t>(matrix.shape.num_columns());
  const auto from_task = [&](TreeNode node, std::span<double> out) {
    const auto task = std::find_if(tasks.begin(), tasks.end(), [&](const Task& each) { return each.node == node; });
    if (task == tasks.end()) return false;
    std::copy(task->columns.begin(), task->columns.end(), out.begin());
    return true;
  };
  for (int64_t i = matrix.first_own; i < matrix.first_own + matrix.num_own; ++i) {
    const auto at = static_cast<size_t>(matrix.columns_at) + static_cast<size_t>(i) * width;
    add_up(matrix.nodes[static_cast<size_t>(i)], buffer.subspan(at, width), from_task);
  }
}

void FactoredMoments::average(Matrix& matrix, const optim::OptimizerStep& step, std::span<const double> buffer) const {
  const auto& rule = std::get<optim::AdafactorRule>(step.rule);
  const optim::MatrixShape& shape = matrix.shape;
  const auto width = static_cast<size_t>(shape.num_columns());
  std::vector<double> columns(width);
  add_up({0, matrix.num_pieces}, columns, [&](TreeNode node, std::span<double> out) {
    const auto found = std::find(matrix.nodes.begin(), matrix.nodes.end(), node);
    if (found == matrix.nodes.end()) return false;
    const auto index = static_cast<size_t>(found - matrix.nodes.begin());
    const auto part = buffer.subspan(static_cast<size_t>(matrix.columns_at) + index * width, width);
    std::copy(part.begin(), part.end(), out.begin());
    return true;
  });
  std::vector<double> rows(static_cast<size_t>(shape.num_rows()), 0.0);
  for (int64_t row = 0; row < shape.num_rows(); ++row) {
    const int64_t last = ((row + 1) * shape.cols - 1) / kPieceElements;
    for (int64_t piece = row * shape.cols / kPieceElements; piece <= last; ++piece) {
      rows[static_cast<size_t>(row)] += buffer[static_cast<size_t>(matrix.rows_at + row + piece)];
    }
  }
  optim::average_squares(values_of(matrix.row), rows, shape.cols, rule, step.step);
  optim::average_squares(values_of(matrix.column), columns, shape.rows, rule, step.step);
  matrix.row_factors = optim::row_factors(values_of(matrix.row), shape);
  matrix.column_factors = optim::column_factors(values_of(matrix.column));
}

int64_t FactoredMoments::state_bytes() const {
  int64_t values = 0;
  for (const Matrix& matrix : matrices_) values += matrix.shape.num_rows() + matrix.shape.num_columns();
  return values * int64_t{sizeof(float)};
}

}  // namespace lockstep::shard
