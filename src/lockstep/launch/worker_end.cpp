#include "lockstep/launch/worker_end.h"

#include <algorithm>
#include <array>

namespace lockstep::launch {

namespace {

constexpr int kResumable = 75;

double failure_time(const WorkerEnd& end) {
  if (end.torch_error) return std::min(end.time, end.torch_error->time);
  return end.record && !end.verdict ? end.record->time : end.time;
}

/// All is saved; how the process ends after that does not matter.
bool is_resumable(const WorkerEnd& end) {
  if (end.record) return end.record->kind == ErrorKind::Resumable;
  return !end.is_foreign && end.signal == 0 && end.exit_status == kResumable;
}

const WorkerEnd* earliest(std::span<const WorkerEnd> ends, EndClass wanted) {
  const WorkerEnd* best = nullptr;
  for (const WorkerEnd& end : ends) {
    if (classify(end) == wanted && (best == nullptr || failure_time(end) < failure_time(*best))) best = &end;
  }
  return best;
}

bool ended_by_itself(const WorkerEnd& end) {
  if (end.still_there || end.left_early) return false;
  return is_resumable(end) || (end.signal == 0 && end.exit_status == 0);
}

}  // namespace

std::optional<ErrorKind> error_kind(const WorkerEnd& end) {
  if (end.verdict) return ErrorKind::Timeout;
  if (end.record) return end.record->kind;
  if (end.left_early) return ErrorKind::Environment;
  if (end.signal != 0 || end.is_foreign) return std::nullopt;
  using enum ErrorKind;
  constexpr std::array kKinds = {Usage, Data, Environment, Peer, Timeout, NonFinite, OtherBits, Internal, Resumable};
  for (const ErrorKind kind : kKinds) {
    if (exit_code(kind) == end.exit_status) return kind;
  }
  return std::nullopt;
}

int exit_code(const WorkerEnd& end) {
  if (end.verdict || end.record || end.left_early) return exit_code(*error_kind(end));
  return end.signal != 0 ? 128 + end.signal : end.exit_status;
}

EndClass classify(const WorkerEnd& end) {
  if (end.verdict) return EndClass::Failure;
  if (is_resumable(end)) return EndClass::Orderly;
  const auto kind = error_kind(end);
  const bool is_consequence = kind == ErrorKind::Peer || kind == ErrorKind::Timeout;
  if (end.record) return is_consequence ? EndClass::Consequence : EndClass::Failure;
  if (end.left_early) return EndClass::Failure;
  if (end.still_there || ended_by_itself(end)) return EndClass::Orderly;
  const bool failed_before_it_was_asked = end.torch_error && end.torch_error->time < end.stop_time;
  if (failed_before_it_was_asked) return EndClass::Failure;
  if (end.signal != 0) return end.was_sent(end.signal) ? EndClass::Orderly : EndClass::Failure;
  // A program that is asked to stop may end with any code of its own.
  if (end.signals_sent != 0) return EndClass::Orderly;
  return is_consequence ? EndClass::Consequence : EndClass::Failure;
}

std::optional<Cause> first_cause(std::span<const WorkerEnd> ends) {
  const WorkerEnd* failure = earliest(ends, EndClass::Failure);
  const WorkerEnd* consequence = earliest(ends, EndClass::Consequence);
  if (failure == nullptr && consequence == nullptr) return std::nullopt;
  if (consequence == nullptr) return Cause{failure->world_rank, ""};
  if (failure == nullptr) {
    return Cause{consequence->world_rank, "the first to notice; no worker reports a cause of its own"};
  }
  const double lead_s = failure_time(*failure) - failure_time(*consequence);
  if (lead_s <= kConsequenceWindow_s) {
    return Cause{failure->world_rank, fmt::format("rank {} reports a {} error, which follows from it",
                                                  consequence->world_rank, name(*error_kind(*consequence)))};
  }
  return Cause{consequence->world_rank, fmt::format("it failed {:.1f} s before rank {}, too long to follow from it",
                                                    lead_s, failure->world_rank)};
}

int group_exit_code(std::span<const WorkerEnd> ends, const std::optional<Cause>& cause, int interrupted_by) {
  if (cause) {
    const auto end = std::find_if(ends.begin(), ends.end(),
                                  [&](const WorkerEnd& e) { return e.world_rank == cause->world_rank; });
    if (end != ends.end() && (classify(*end) == EndClass::Failure || interrupted_by == 0)) return exit_code(*end);
  }
  const bool all_by_themselves = std::all_of(ends.begin(), ends.end(), ended_by_itself);
  if (interrupted_by != 0 && !all_by_themselves) return 128 + interrupted_by;
  return std::any_of(ends.begin(), ends.end(), is_resumable) ? kResumable : 0;
}

}  // namespace lockstep::launch
