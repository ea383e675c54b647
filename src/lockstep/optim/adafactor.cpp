#include "lockstep/optim/adafactor.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <cmath>

namespace lockstep::optim {
namespace {

constexpr size_t kRowLanes = 16;

/// Columns are elementwise; the row goes through fixed lanes, so that the compiler may use any vector width.
double add_row_squares(const float* __restrict grad, size_t count, float scale, double* __restrict columns) {
  double lanes[kRowLanes] = {};
  const size_t whole = count - count % kRowLanes;
  for (size_t j = 0; j < whole; j += kRowLanes) {
    for (size_t lane = 0; lane < kRowLanes; ++lane) {
      const auto g = static_cast<double>(grad[j + lane] * scale);
      columns[j + lane] += g * g;
      lanes[lane] += g * g;
    }
  }
  for (size_t j = whole; j < count; ++j) {
    const auto g = static_cast<double>(grad[j] * scale);
    columns[j] += g * g;
    lanes[j - whole] += g * g;
  }
  for (size_t width = kRowLanes / 2; width >= 1; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

float inverse_root(float value) { return 1.0F / __builtin_sqrtf(value); }

/// Calls work(first element inside the span, count, row, first column of its matrix) for each row or part of one.
template <class Work>
void for_each_row(int64_t begin, int64_t count, const MatrixShape& shape, Work work) {
  for (int64_t done = 0; done < count;) {
    const int64_t row = (begin + done) / shape.cols;
    const int64_t inside = (begin + done) % shape.cols;
    const int64_t part = std::min(shape.cols - inside, count - done);
    work(static_cast<size_t>(done), static_cast<size_t>(part), static_cast<size_t>(row),
         static_cast<size_t>(row / shape.rows * shape.cols + inside));
    done += part;
  }
}

}  // namespace

MatrixShape MatrixShape::of(std::span<const int64_t> shape) {
  LS_CHECK(shape.size() >= 2, "{} dimensions", shape.size());
  MatrixShape matrix{.batch = 1, .rows = shape[shape.size() - 2], .cols = shape.back()};
  for (const int64_t dim : shape.first(shape.size() - 2)) matrix.batch *= dim;
  return matrix;
}

int64_t rows_touched(int64_t begin, int64_t count, const MatrixShape& shape) {
  return count == 0 ? 0 : (begin + count - 1) / shape.cols - begin / shape.cols + 1;
}

int64_t add_squares(std::span<const float> grad, int64_t begin, const MatrixShape& shape, double grad_scale,
                    std::span<double> columns, std::span<double> rows) {
  const auto count = static_cast<int64_t>(grad.size());
  const auto scale = static_cast<float>(grad_scale);
  size_t num_rows = 0;
  for_each_row(begin, count, shape, [&](size_t first, size_t part, size_t, size_t column) {
    rows[num_rows++] = add_row_squares(grad.data() + first, part, scale, columns.data() + column);
  });
  return static_cast<int64_t>(num_rows);
}

double adafactor_beta2(const AdafactorRule& rule, int64_t step) {
  LS_CHECK(step >= 1, "step = {}", step);
  return 1 - std::pow(static_cast<double>(step), rule.decay_rate);
}

void average_squares(std::span<float> state, std::span<const double> sums, int64_t count, const AdafactorRule& rule,
                     int64_t step) {
  LS_CHECK(state.size() == sums.size(), "{} states, {} sums", state.size(), sums.size());
  const double beta2 = adafactor_beta2(rule, step);
  for (size_t i = 0; i < state.size(); ++i) {
    const double mean = sums[i] / static_cast<double>(count) + rule.epsilon;
    state[i] = static_cast<float>(beta2 * static_cast<double>(state[i]) + (1 - beta2) * mean);
  }
}

std::vector<float> row_factors(std::span<const float> row, const MatrixShape& shape) {
  std::vector<float> factors(row.size());
  const auto rows = static_cast<size_t>(shape.rows);
  for (size_t begin = 0; begin < row.size(); begin += rows) {
    double sum = 0;
    for (const float value : row.subspan(begin, rows)) sum += static_cast<double>(value);
    const auto mean = static_cast<float>(sum / static_cast<double>(rows));
    for (size_t i = begin; i < begin + rows; ++i) factors[i] = inverse_root(row[i] / mean);
  }
  return factors;
}

std::vector<float> column_factors(std::span<const float> column) {
  std::vector<float> factors(column.size());
  std::transform(column.begin(), column.end(), factors.begin(), inverse_root);
  return factors;
}

void factored_update(std::span<float> update, std::span<const float> grad, int64_t begin, const MatrixShape& shape,
                     std::span<const float> row_factors, std::span<const float> column_factors, double grad_scale) {
  const auto scale = static_cast<float>(grad_scale);
  for_each_row(begin, static_cast<int64_t>(grad.size()), shape,
               [&](size_t first, size_t part, size_t row, size_t column) {
                 const float row_factor = row_factors[row];
                 const float* __restrict g = grad.data() + first;
                 const float* __restrict factors = column_factors.data() + column;
                 float* __restrict u = update.data() + first;
                 for (size_t j = 0; j < part; ++j) u[j] = row_factor * factors[j] * (g[j] * scale);
               });
}

void average_vector_squares(std::span<float> exp_avg_sq, std::span<const float> grad, const AdafactorRule& rule,
                            int64_t step, double grad_scale) {
  const double beta2 = adafactor_beta2(rule, step);
  const auto keep = static_cast<float>(beta2), take = static_cast<float>(1 - beta2);
  const auto scale = static_cast<float>(grad_scale), epsilon = static_cast<float>(rule.epsilon);
  for (size_t i = 0; i < grad.size(); ++i) {
    const float g = grad[i] * scale;
    exp_avg_sq[i] = exp_avg_sq[i] * keep + take * (g * g + epsilon);
  }
}

void vector_update(std::span<float> update, std::span<const float> grad, std::span<const float> exp_avg_sq,
                   double grad_scale) {
  const auto scale = static_cast<float>(grad_scale);
  for (size_t i = 0; i < grad.size(); ++i) update[i] = inverse_root(exp_avg_sq[i]) * (grad[i] * scale);
}

double update_divisor(const AdafactorRule& rule, double sum_of_squares, int64_t numel) {
  const double rms = std::sqrt(sum_of_squares / static_cast<double>(numel));
  return std::max(1.0, rms / rule.clip_threshold);
}

void apply_update(std::span<float> master, std::span<const float> update, double learning_rate, double weight_decay,
                  double divisor) {
  const auto decay = static_cast<float>(1 - learning_rate * weight_decay);
  const auto rate = static_cast<float>(learning_rate / divisor);
  for (size_t i = 0; i < master.size(); ++i) master[i] = master[i] * decay - rate * update[i];
}

}  // namespace lockstep::optim
