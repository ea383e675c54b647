#pragma once

#include "lockstep/base/profile.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// A profile told in numbers: what each kind of work took of the updates, and how near to the machine's limits it came.
namespace lockstep::metrics {

/// What one thread of this rank's can do while all others do the same; measured.
struct MachineLimits {
  double flops_per_s = 0;               ///< products of matrices in the compute dtype
  double bytes_per_s = 0;               ///< read and written in long streams
};

struct RankProfile {
  int rank = 0;
  std::string host;
  int64_t origin_ns = 0;                ///< of this rank's clock: the trace's zero
  MachineLimits limits;
  std::vector<std::vector<profile::Span>> threads;
  int64_t num_lost = 0;                 ///< spans that found no room
};

enum class WorkUnit { None, Flops, Bytes };
struct KindFacts {
  std::string_view name;                ///< in a trace
  std::string_view category;            ///< compute, communicate, wait, frame or between
  WorkUnit unit = WorkUnit::None;
};
const KindFacts& facts_of(profile::Kind kind);
/// "layer 3, forward".
std::string name_of(const profile::Span& span);

/// One line of the table.
struct CostRow {
  std::string_view name;
  double ms = 0;                        ///< per update, of a thread in the mean: the rows add up to the update's time
  double share = 0;                     ///< of that time
  WorkUnit unit = WorkUnit::None;
  double rate = 0;                      ///< of one thread while it does this, per second; 0: unknown
  double of_limit = 0;                  ///< of what one thread can do; 0: unknown
};

/// Adds up the profiles of all ranks. A span counts where it lies: what it holds is taken off it, and what embeddings, heads
/// and weight gradients hold is theirs.
class ProfileCosts {
 public:
  static constexpr size_t kMaxRows = 24;

  void add(const RankProfile& rank);

  /// In a fixed order, without those that took no time.
  std::vector<CostRow> rows() const;
  double update_ms() const;             ///< mean of the ranks' updates
  int64_t first_update() const { return first_update_; }
  int64_t num_updates() const { return num_updates_; }
  int64_t num_lost() const { return num_lost_; }
  MachineLimits limits() const;         ///< mean of the ranks
  /// The page for the terminal.
  std::vector<std::string> lines() const;

 private:
  struct Sum {
    int64_t ns = 0, work = 0;
  };
  void add_thread(int rank, int thread, const std::vector<profile::Span>& spans);
  void add_outside(const profile::Span& span);
  std::string balance_line() const;
  std::string largest_line(const std::vector<CostRow>& rows) const;
  std::string limits_line() const;

  std::array<Sum, kMaxRows> sums_;
  int64_t total_ns_ = 0;                ///< of all threads
  int64_t updates_ns_ = 0, num_update_spans_ = 0;
  int64_t first_update_ = 0, num_updates_ = 0, num_lost_ = 0;
  int64_t evaluation_ns_ = 0, checkpoint_ns_ = 0;  ///< between updates, of rank 0
  int num_ranks_ = 0;
  std::vector<std::string> names_;      ///< of the threads
  std::vector<double> busy_;            ///< share of each thread's time in which it did not wait
  MachineLimits limits_sum_;
};

}  // namespace lockstep::metrics
