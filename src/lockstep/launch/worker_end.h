#pragma once

#include "lockstep/launch/error_record.h"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::launch {

/// What a foreign program left about its failure: the file that torch's record decorator writes.
struct TorchError {
  std::string path = {};
  std::string message = {};    ///< "ValueError: no such layer"
  std::string traceback = {};  ///< empty when it was not given
  int64_t timestamp = 0;       ///< seconds since 1970, as the file says
  double time = 0;             ///< the same, as exactly as can be told
};

/// How one worker ended, as its front program saw it.
struct WorkerEnd {
  int world_rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  int exit_status = 0;  ///< meaningful when signal == 0
  int signal = 0;       ///< the signal that killed it, or 0
  double time = 0;      ///< seconds since 1970, when it was seen to end (or was declared dead)
  std::string phase = {};  ///< the last one it told
  std::optional<ErrorRecord> record = {};   ///< its own report
  std::optional<std::string> verdict = {};  ///< why the front program declared it dead (always a Timeout)
  uint64_t signals_sent = 0;           ///< bit s: the front program had sent it signal s before it ended
  double stop_time = 0;                ///< seconds since 1970, when it was sent the first of them
  bool is_foreign = false;             ///< no program of lockstep: its exit codes mean nothing beyond zero or not
  bool was_out_of_memory = false;      ///< the kernel killed it for lack of memory
  std::optional<uint64_t> address_space_bytes = {};  ///< own workers: the limit they ran under (ulimit -v), if there was one
  std::optional<TorchError> torch_error = {};  ///< foreign programs only
  std::string last_lines = {};         ///< of its stderr, when that went through lockstep into a file
  bool left_early = false;             ///< own workers: it ended with status 0 and had not done what it was started for
  bool still_there = false;            ///< not even SIGKILL ended it (uninterruptible wait)

  bool was_sent(int number) const { return (signals_sent >> static_cast<unsigned>(number) & 1U) != 0; }
};

enum class EndClass {
  Orderly,      ///< exit 0 (own workers: also Resumable), or ended because the front program asked it to (and had not
                ///< recorded a failure before)
  Consequence,  ///< its own report is Peer or Timeout: as a rule another worker's death seen from here
  Failure,      ///< everything else
};
EndClass classify(const WorkerEnd& end);
/// The kind that the verdict, the record or else the exit code tells (Environment when it left early); absent for a signal
/// or a foreign exit code.
std::optional<ErrorKind> error_kind(const WorkerEnd& end);
/// The worker's part in the exit code: verdict, record or left early: its kind's; else 128 + signal, or the status.
int exit_code(const WorkerEnd& end);

struct Cause {
  int world_rank = 0;
  std::string reason;  ///< why this one, when Peer or Timeout errors leave a choice; else empty
};

/// How long after a Peer or Timeout error a failure of another kind is still taken for its cause.
inline constexpr double kConsequenceWindow_s = 5.0;

/// The end that explains the others: the earliest failure; a Consequence only when no Failure came before it or within
/// the window after it. Absent when all ends are orderly.
std::optional<Cause> first_cause(std::span<const WorkerEnd> ends);

/// Exit code of the front program. A Failure decides before anything else; else an interrupted group that did not end
/// by itself: 128 + signal; else a Consequence; else 75 if any worker ended Resumable, else 0.
int group_exit_code(std::span<const WorkerEnd> ends, const std::optional<Cause>& cause, int interrupted_by);

}  // namespace lockstep::launch
