#pragma once

#include <cstdint>
#include <memory>
#include <vector>

/// Which samples an update takes: a pure function of (seed, epoch, update). Hugging Face's order.
namespace lockstep::data {

struct OrderOptions {
  int64_t num_rows = 0;
  int64_t global_batch = 1;        ///< B samples per update
  uint64_t seed = 42;              ///< data_seed, or seed
  bool shuffle = true;             ///< train_sampling_strategy random; false = sequential
  bool drop_last = false;          ///< leave out the short update at the end of an epoch
  double num_epochs = 3;           ///< may be fractional
  int64_t max_steps = -1;          ///< > 0 overrides num_epochs; the data is walked again as often as needed
};

struct UpdateSamples {
  int64_t update = 1;              ///< 1-based, over the whole run
  int64_t epoch = 0;               ///< 0-based
  /// Hugging Face's "epoch" after this update, as logged by a run without accumulation: epoch + updates done in it /
  /// updates per epoch. (With accumulation theirs counts micro-batches and so depends on the layout; this does not.)
  double epoch_progress = 0;
  std::vector<int64_t> rows;       ///< at most B; the last update of an epoch may be short
  uint64_t first_ordinal = 0;      ///< samples consumed by the run before this update; rows[i] has first_ordinal + i
};

/// Epoch e is walked in the order torch.randperm(num_rows, generator seeded with seed + e) (accelerate's
/// SeedableRandomSampler), update by update in steps of B. Copies share a cache; thread-safe.
class Order {
 public:
  /// Throws Error{Usage} when nothing would be trained, naming the values.
  explicit Order(OrderOptions options);
  /// ceil(num_rows / B); floor with drop_last.
  int64_t updates_per_epoch() const { return updates_per_epoch_; }
  /// max_steps, or ceil(num_epochs * updates_per_epoch).
  int64_t total_updates() const { return total_updates_; }
  /// 1 <= update <= total_updates().
  UpdateSamples samples(int64_t update) const;

 private:
  using Permutation = std::vector<int64_t>;
  struct Cache;
  std::shared_ptr<const Permutation> permutation(int64_t epoch) const;

  OrderOptions options_;
  int64_t updates_per_epoch_ = 0;
  int64_t total_updates_ = 0;
  std::shared_ptr<Cache> cache_;
};

}  // namespace lockstep::data
