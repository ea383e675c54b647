#pragma once

#include "lockstep/base/profile.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/metrics/profile_costs.h"
#include "lockstep/train/loop.h"
#include "lockstep/train/update.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::recipes {

/// Where the profile of a run in `output` lies.
std::filesystem::path profile_folder(const std::filesystem::path& output);

/// Records `num_updates` updates of a run, from the third that it runs (of few: fewer, but one at least), and leaves them in
/// trace.json and table.txt as soon as the last of them is done, or the run. On every rank, last of the loop's callbacks; rank
/// 0 writes and shows. Nothing here can show in the result.
class Profiler final : public train::LoopCallback {
 public:
  /// Keeps references. `folder`: exists, or can be made. `say`: prints a line.
  Profiler(int64_t num_updates, std::filesystem::path folder, train::Trainer& trainer, comm::Communicator& comm,
           std::function<void(const std::string&)> say);

  void on_step_begin(const train::LoopState& state, train::LoopControl& control) override;
  void on_step_end(const train::LoopState& state, train::LoopControl& control) override;
  void on_train_end(const train::LoopState& state, train::LoopControl& control) override;

  /// Calls `work`, which is none of an update's, and records it where it lies between updates that are recorded.
  void between(profile::Kind kind, const std::function<void()>& work);

 private:
  void begin();
  void finish();
  std::string own_header() const;
  /// Collective: the spans of a rank, on every rank.
  void fetch_spans(metrics::RankProfile& rank, const std::vector<int64_t>& counts) const;

  int64_t num_updates_;
  std::filesystem::path folder_;
  train::Trainer& trainer_;
  comm::Communicator& comm_;
  std::function<void(const std::string&)> say_;
  std::optional<int64_t> first_;              ///< update that is recorded
  int64_t num_recorded_ = 0;
  bool is_finished_ = false;
  std::unique_ptr<profile::Recorder> recorder_;
  int64_t started_ns_ = 0;
  metrics::MachineLimits limits_;
};

}  // namespace lockstep::recipes
