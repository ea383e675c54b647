#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace lockstep {

/// What a loss of one's own is given: some rows that have labels, at most those of one grain.
struct LossInput {
  int64_t num_rows = 0;
  int64_t num_labels = 0;
  std::span<const float> logits;        ///< [num_rows, num_labels], row by row
  /// Single label: [num_rows], the class. Multi label (0 or 1) and regression: [num_rows, num_labels].
  std::span<const float> labels;
};

/// Writes the loss of every row to `losses` [num_rows] and the gradient of their sum by the logits to `gradient` [num_rows,
/// num_labels]. A row's loss may depend on that row alone. Called from many threads at once; what it throws, train() throws.
using LossFunction = std::function<void(const LossInput& input, std::span<float> losses, std::span<float> gradient)>;

}  // namespace lockstep
