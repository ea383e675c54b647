#pragma once

#include "lockstep/optim/rule.h"
#include "lockstep/tensor/exact.h"

#include <cstdint>
#include <span>
#include <vector>

/// Adafactor (Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018) as
/// transformers/optimization.py computes it with scale_parameter and relative_step off. With g the gradient times
/// grad_scale, t the step, b = 1 - t^decay_rate and q = g^2 + epsilon, of a matrix with R rows and C columns:
///   row[i] = b row[i] + (1 - b) mean over j of q[i, j];   col[j] = b col[j] + (1 - b) mean over i of q[i, j]
///   u[i, j] = g[i, j] / sqrt(row[i] / mean(row)) / sqrt(col[j])
/// of a vector:
///   v = b v + (1 - b) q;   u = g / sqrt(v)
/// and then, of either, with RMS over the whole tensor:
///   p -= lr weight_decay p;   p -= lr u / max(1, RMS(u) / clip_threshold)
/// A tensor of more dimensions is a batch of matrices, with one RMS.
///
/// Sums over a tensor must not show who owns which part of it. So a square is a double (exact for a float), and doubles
/// are added in an order that the tensor's shape alone fixes: inside a piece from left to right (16 lanes along a row),
/// pieces of a column along the binary tree of SumTree, pieces of a row one after the other.
namespace lockstep::optim {

/// rows x cols, `batch` times.
struct MatrixShape {
  int64_t batch = 1, rows = 1, cols = 1;
  static MatrixShape of(std::span<const int64_t> shape);  ///< two dimensions or more
  int64_t num_rows() const { return batch * rows; }       ///< of all matrices
  int64_t num_columns() const { return batch * cols; }
};

/// Consecutive elements [begin, begin + size of the span) of a tensor, inside one piece.
/// Adds each square (grad * grad_scale)^2 to its column in `columns` (num_columns()), and puts the sum of each row that
/// the elements touch into `rows`, first row first. Returns the number of rows touched.
int64_t add_squares(std::span<const float> grad, int64_t begin, const MatrixShape& shape, double grad_scale,
                    std::span<double> columns, std::span<double> rows);
/// Rows that `count` elements from `begin` on touch.
int64_t rows_touched(int64_t begin, int64_t count, const MatrixShape& shape);

/// b of the header's formulas.
double adafactor_beta2(const AdafactorRule& rule, int64_t step);
/// state = b state + (1 - b) (sum / count + epsilon), elementwise.
void average_squares(std::span<float> state, std::span<const double> sums, int64_t count, const AdafactorRule& rule,
                     int64_t step);
/// 1 / sqrt(row / mean(row)), mean per matrix; and 1 / sqrt(col).
std::vector<float> row_factors(std::span<const float> row, const MatrixShape& shape);
std::vector<float> column_factors(std::span<const float> column);

/// u of elements [begin, ...) of a matrix, not yet clipped.
void factored_update(std::span<float> update, std::span<const float> grad, int64_t begin, const MatrixShape& shape,
                     std::span<const float> row_factors, std::span<const float> column_factors, double grad_scale);
/// v, elementwise, and u from it.
void average_vector_squares(std::span<float> exp_avg_sq, std::span<const float> grad, const AdafactorRule& rule,
                            int64_t step, double grad_scale);
void vector_update(std::span<float> update, std::span<const float> grad, std::span<const float> exp_avg_sq,
                   double grad_scale);

/// max(1, RMS / clip_threshold) of a tensor with `sum_of_squares` of u.
double update_divisor(const AdafactorRule& rule, double sum_of_squares, int64_t numel);
/// The last line of the formulas; both rates are rounded to float once.
void apply_update(std::span<float> master, std::span<const float> update, double learning_rate, double weight_decay,
                  double divisor);

}  // namespace lockstep::optim
