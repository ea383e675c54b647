#include "lockstep/data/order.h"

#include "lockstep/base/error.h"
#include "lockstep/base/randperm.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

namespace lockstep::data {

/// The permutation of the epoch asked for last: drawing one costs about as much as reading it, for every update.
struct Order::Cache {
  std::mutex mutex;  ///< guards both
  int64_t epoch = -1;
  std::shared_ptr<const Permutation> permutation;
};

Order::Order(OrderOptions options) : options_(options), cache_(std::make_shared<Cache>()) {
  const int64_t num_rows = options_.num_rows;
  const int64_t batch = options_.global_batch;
  if (num_rows < 1) throw Error::usage("the data has no rows, so there is nothing to train on. Check --dataset_name.");
  if (batch < 1) throw Error::usage("the global batch is {} samples; it must be at least 1.", batch);

  updates_per_epoch_ = options_.drop_last ? num_rows / batch : (num_rows + batch - 1) / batch;
  if (updates_per_epoch_ == 0) {
    throw Error::usage("--dataloader_drop_last leaves nothing: {} rows are fewer than one global batch of {} samples. "
                       "Leave it out, or choose a smaller batch.", num_rows, batch);
  }
  if (options_.max_steps > 0) {
    total_updates_ = options_.max_steps;
    return;
  }
  // The same double product as transformers, so that a fractional number of epochs ends at the same update.
  const double total = std::ceil(options_.num_epochs * static_cast<double>(updates_per_epoch_));
  constexpr double kMost = 9.0e15;  // below 2^53, where doubles still count by ones
  if (!(total >= 1 && total <= kMost)) {
    throw Error::usage("--num_train_epochs {} with {} updates per epoch gives {} updates. "
                       "Use a positive number of epochs, or --max_steps.",
                       options_.num_epochs, updates_per_epoch_, total);
  }
  total_updates_ = static_cast<int64_t>(total);
}

std::shared_ptr<const Order::Permutation> Order::permutation(int64_t epoch) const {
  const std::scoped_lock lock(cache_->mutex);
  if (cache_->epoch != epoch) {
    cache_->permutation = std::make_shared<const Permutation>(
        torch_randperm(options_.num_rows, options_.seed + static_cast<uint64_t>(epoch)));
    cache_->epoch = epoch;
  }
  return cache_->permutation;
}

UpdateSamples Order::samples(int64_t update) const {
  LS_CHECK(update >= 1 && update <= total_updates_, "update {} of {}", update, total_updates_);
  const int64_t epoch = (update - 1) / updates_per_epoch_;
  const int64_t update_in_epoch = (update - 1) % updates_per_epoch_;
  const int64_t batch = options_.global_batch;
  const int64_t rows_per_epoch = options_.drop_last ? updates_per_epoch_ * batch : options_.num_rows;
  const int64_t begin = update_in_epoch * batch;
  const int64_t end = std::min(begin + batch, rows_per_epoch);

  UpdateSamples result;
  result.update = update;
  result.epoch = epoch;
  result.epoch_progress = static_cast<double>(epoch) +
                          static_cast<double>(update_in_epoch + 1) / static_cast<double>(updates_per_epoch_);
  result.first_ordinal = static_cast<uint64_t>(epoch * rows_per_epoch + begin);
  if (options_.shuffle) {
    const auto order = permutation(epoch);
    result.rows.assign(order->begin() + begin, order->begin() + end);
  } else {
    result.rows.resize(static_cast<size_t>(end - begin));
    std::iota(result.rows.begin(), result.rows.end(), begin);
  }
  return result;
}

}  // namespace lockstep::data
