#include "lockstep/optim/adafactor.h"

#include "optim/values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::optim {
namespace {

std::vector<double> in_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

TEST(MatrixShape, TakesTheLastTwoDimensions) {
  const int64_t dims[] = {2, 3, 4, 5};
  const MatrixShape shape = MatrixShape::of(dims);
  EXPECT_EQ(shape.batch, 6);
  EXPECT_EQ(shape.num_rows(), 24);
  EXPECT_EQ(shape.num_columns(), 30);
}

TEST(AddSquares, PutsEachSquareIntoItsRowAndColumn) {
  const MatrixShape shape{.batch = 2, .rows = 3, .cols = 50};
  const auto numel = static_cast<size_t>(shape.batch * shape.rows * shape.cols);
  const std::vector<float> grad = random_values(numel, 9, 4);
  std::vector<double> columns(static_cast<size_t>(shape.num_columns()), 0), rows(6, 0);
  for (size_t begin = 0; begin < numel; begin += 70) {
    const size_t count = std::min<size_t>(70, numel - begin);
    std::vector<double> part(4, 0);
    const int64_t touched = add_squares(std::span(grad).subspan(begin, count), static_cast<int64_t>(begin), shape, 0.5,
                                        columns, part);
    ASSERT_EQ(touched, rows_touched(static_cast<int64_t>(begin), static_cast<int64_t>(count), shape));
    for (int64_t k = 0; k < touched; ++k) rows[begin / 50 + static_cast<size_t>(k)] += part[static_cast<size_t>(k)];
  }
  std::vector<double> want_columns(columns.size(), 0), want_rows(rows.size(), 0);
  for (size_t i = 0; i < numel; ++i) {
    const double square = 0.25 * grad[i] * grad[i];
    want_rows[i / 50] += square;
    want_columns[i / 150 * 50 + i % 50] += square;
  }
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(rows[i], want_rows[i], 50 * 0x1p-53 * want_rows[i]);
  for (size_t i = 0; i < columns.size(); ++i) EXPECT_NEAR(columns[i], want_columns[i], 3 * 0x1p-53 * want_columns[i]);
}

TEST(AverageSquares, ForgetsByTheStep) {
  const AdafactorRule rule;
  EXPECT_EQ(adafactor_beta2(rule, 1), 0) << "the first step takes everything";
  EXPECT_DOUBLE_EQ(adafactor_beta2(rule, 32), 1 - 1.0 / 16);
  std::vector<float> state{4};
  const std::vector<double> sums{24};
  average_squares(state, sums, 3, rule, 32);
  EXPECT_FLOAT_EQ(state[0], 4 * 15.0F / 16 + 8.0F / 16);
}

TEST(RowFactors, AreRelativeToTheMeanOfTheirMatrix) {
  const std::vector<float> row{1, 3, 8, 8};
  const std::vector<float> factors = row_factors(row, {.batch = 2, .rows = 2, .cols = 1});
  EXPECT_FLOAT_EQ(factors[0], std::sqrt(2.0F));
  EXPECT_FLOAT_EQ(factors[1], std::sqrt(2.0F / 3));
  EXPECT_EQ(factors[2], 1);
  EXPECT_EQ(factors[3], 1);
}

TEST(FactoredUpdate, IsExactForARankOneSquare) {
  // g^2 = outer(a, b): then row and column means say everything and |u| = 1 after the first step.
  const MatrixShape shape{.batch = 1, .rows = 5, .cols = 6};
  std::vector<float> grad, update(30);
  for (size_t i = 0; i < 30; ++i) {
    grad.push_back((i % 3 == 0 ? -1.0F : 1.0F) * static_cast<float>((1 + i / 6) * (2 + i % 6)));
  }
  std::vector<double> rows(5), columns(6, 0);
  add_squares(grad, 0, shape, 1, columns, rows);
  std::vector<float> row(5, 0), column(6, 0);
  average_squares(row, rows, 6, {}, 1);
  average_squares(column, columns, 5, {}, 1);
  factored_update(update, grad, 0, shape, row_factors(row, shape), column_factors(column), 1);
  for (size_t i = 0; i < 30; ++i) EXPECT_NEAR(update[i], grad[i] < 0 ? -1 : 1, 1e-6);
}

TEST(UpdateDivisor, ClipsTheRootMeanSquare) {
  EXPECT_EQ(update_divisor({}, 4, 100), 1);
  EXPECT_DOUBLE_EQ(update_divisor({}, 900, 100), 3);
  EXPECT_DOUBLE_EQ(update_divisor({.clip_threshold = 2}, 900, 100), 1.5);
  std::vector<float> master{1, 2};
  const std::vector<float> update{4, -8};
  apply_update(master, update, 0.5, 0.5, 4);
  EXPECT_EQ(in_double(master), (std::vector<double>{0.25, 2.5}));
}

}  // namespace
}  // namespace lockstep::optim
