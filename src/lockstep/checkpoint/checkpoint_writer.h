#pragma once

#include "lockstep/checkpoint/rank_files.h"
#include "lockstep/comm/communicator.h"

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::checkpoint {

/// A checkpoint that has appeared. The same on every rank but for the times, which are this rank's own.
struct SaveReport {
  fs::path folder;
  int64_t update = 0;
  int64_t num_bytes = 0;     ///< of all files
  double read_s = 0;         ///< from begin() until the live state had been read
  double disk_s = 0;         ///< then, until this rank's share was on the device
  double stall_s = 0;        ///< that wait() and finish() kept their caller, publishing included
};

/// What wait() and finish() did.
struct WaitResult {
  double stall_s = 0;
  std::optional<SaveReport> published;
};

/// Takes checkpoints while the run goes on. A save reads the live state from a thread of its own during the next forward and
/// backward, which change neither masters nor the optimizer's state; no copy is made. The folder appears, whole, in the
/// course of the update after that one, so that the device has as long as an update to take the data:
///
///   begin(job)           | forward, backward | wait()           | step | forward, backward | wait()            | step
///   (thread) reads the live state ...............| fsyncs ..............................................| publishes
///
/// One thread of each rank calls it; calls are collective over `comm` unless said otherwise. Errors of any rank (full disk,
/// no permission, a weight that is not finite) are thrown on every rank, with the rank's number, by the call that would have
/// published; nothing of that checkpoint is left, earlier ones are untouched, and the writer can be used again. A rank that
/// does not take part is the communicator's Error{Timeout} or Error{Peer}, which names it.
class CheckpointWriter {
 public:
  /// Removes what an earlier, killed run left in `output`, which exists and is held by this run (checkpoint/output_folder.h);
  /// rank 0 does it. Throws Error{Environment} on every rank, naming the ranks that do not see the same folder.
  /// Keeps references to `comm` and `disk`.
  CheckpointWriter(comm::Communicator& comm, fs::path output, Disk& disk = real_disk());
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Not collective. Gives up a save that was not published, and waits for the call to the disk that is under way.
  ~CheckpointWriter();

  /// Not collective, returns at once. Not while saving().
  void begin(CheckpointJob job);
  /// A save has begun and its folder has not appeared yet.
  bool saving() const;
  /// Called before every optimizer step. The first after begin() returns when this rank's live state may change, at the
  /// latest after comm.timeout(); the second publishes. Others return at once.
  WaitResult wait();
  /// Publishes now: before a begin() while saving(), at the end of the run, before leaving on request.
  WaitResult finish();

  /// Not collective; rank 0 alone. Checkpoints of this output folder vanish at once and are deleted by the writer's
  /// thread. What cannot be removed is a warning.
  void remove(const std::vector<fs::path>& checkpoints);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::checkpoint
