#include "lockstep/launch/worker_end.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

WorkerEnd exited(int rank, double time, int status) {
  return {.world_rank = rank, .exit_status = status, .time = time};
}
WorkerEnd killed(int rank, double time, int signal) {
  return {.world_rank = rank, .signal = signal, .time = time};
}
WorkerEnd failed(int rank, double time, ErrorKind kind) {
  return {.world_rank = rank, .exit_status = exit_code(kind), .time = time + 0.1,
          .record = ErrorRecord{.kind = kind, .message = "m", .world_rank = rank, .time = time}};
}
WorkerEnd stopped(int rank, double time, int signal) {
  WorkerEnd end = killed(rank, time, signal);
  end.signals_sent = uint64_t{1} << signal;
  return end;
}

int cause_of(const std::vector<WorkerEnd>& ends) {
  const auto cause = first_cause(ends);
  return cause ? cause->world_rank : -1;
}

TEST(FirstCause, IsTheEarliestFailure) {
  EXPECT_EQ(cause_of({exited(0, 3, 1), exited(1, 2, 1), killed(2, 4, SIGSEGV)}), 1);
  EXPECT_EQ(cause_of({exited(0, 1, 0), exited(1, 2, 75), stopped(2, 3, SIGTERM)}), -1);
}

TEST(FirstCause, ARecordTellsItsOwnTime) {
  // Rank 0 was seen to end at 2.1 but had failed at 2.0, before rank 1 died.
  EXPECT_EQ(cause_of({failed(0, 2.0, ErrorKind::Data), killed(1, 2.05, SIGSEGV)}), 0);
}

TEST(FirstCause, PeerAndTimeoutNeverWinOverACauseInTheWindow) {
  for (const ErrorKind kind : {ErrorKind::Peer, ErrorKind::Timeout}) {
    EXPECT_EQ(cause_of({failed(0, 1, kind), killed(1, 1.5, SIGKILL), failed(2, 0.9, kind)}), 1);
    EXPECT_EQ(cause_of({failed(0, 2, kind), failed(1, 1, ErrorKind::NonFinite)}), 1);
    EXPECT_EQ(cause_of({exited(0, 1, exit_code(kind)), exited(1, 1.2, 1)}), 1);
    EXPECT_EQ(cause_of({failed(0, 1, kind), killed(1, 1 + kConsequenceWindow_s + 1, SIGSEGV)}), 0);
    EXPECT_EQ(cause_of({failed(0, 1.2, kind), failed(1, 1.1, kind), stopped(2, 2, SIGTERM)}), 1);
  }
}

TEST(FirstCause, AVerdictOfTheFrontProgramIsACause) {
  WorkerEnd silent = stopped(1, 7, SIGKILL);
  silent.verdict = "silent";
  EXPECT_EQ(cause_of({failed(0, 6, ErrorKind::Peer), silent}), 1);
  EXPECT_EQ(error_kind(silent), ErrorKind::Timeout);
  EXPECT_EQ(exit_code(silent), 6);
}

TEST(Classify, WhatTheFrontProgramAskedForIsOrderly) {
  EXPECT_EQ(classify(stopped(0, 1, SIGTERM)), EndClass::Orderly);
  WorkerEnd crashed_while_stopping = killed(0, 1, SIGSEGV);
  crashed_while_stopping.signals_sent = uint64_t{1} << SIGTERM;
  EXPECT_EQ(classify(crashed_while_stopping), EndClass::Failure);
  WorkerEnd own_code = exited(0, 1, 1);
  own_code.signals_sent = uint64_t{1} << SIGTERM;
  EXPECT_EQ(classify(own_code), EndClass::Orderly);
  WorkerEnd recorded = failed(0, 1, ErrorKind::Data);
  recorded.signals_sent = uint64_t{1} << SIGTERM;
  EXPECT_EQ(classify(recorded), EndClass::Failure);
}

TEST(Classify, ARecordCountsEvenWithExitCodeZero) {
  WorkerEnd end = failed(0, 1, ErrorKind::Data);
  end.exit_status = 0;
  EXPECT_EQ(classify(end), EndClass::Failure);
  EXPECT_EQ(exit_code(end), 3);
}

TEST(Classify, ToLeaveEarlyIsAFailureEvenWithExitCodeZero) {
  WorkerEnd end = exited(1, 1, 0);
  end.left_early = true;
  EXPECT_EQ(classify(end), EndClass::Failure);
  EXPECT_EQ(error_kind(end), ErrorKind::Environment);
  EXPECT_EQ(exit_code(end), 4);
  EXPECT_EQ(cause_of({failed(0, 1.5, ErrorKind::Peer), end}), 1);
}

TEST(Classify, WhoHasSavedOnRequestHasNotFailed) {
  WorkerEnd end = failed(0, 1, ErrorKind::Resumable);
  EXPECT_EQ(classify(end), EndClass::Orderly);
  end.exit_status = 0;
  end.signal = SIGSEGV;
  EXPECT_EQ(classify(end), EndClass::Orderly) << "it had saved before";
  EXPECT_EQ(cause_of({end, stopped(1, 2, SIGTERM)}), -1);
}

int code_of(const std::vector<WorkerEnd>& ends, int interrupted_by = 0) {
  return group_exit_code(ends, first_cause(ends), interrupted_by);
}

TEST(GroupExitCode, IsTheCauses) {
  EXPECT_EQ(code_of({exited(0, 1, 0), exited(1, 1, 0)}), 0);
  EXPECT_EQ(code_of({killed(0, 1, SIGKILL), failed(1, 1, ErrorKind::Peer)}), 137);
  EXPECT_EQ(code_of({exited(0, 1, 0), exited(1, 1, 75)}), 75);
  EXPECT_EQ(code_of({failed(0, 1, ErrorKind::Resumable), failed(1, 1, ErrorKind::Resumable)}), 75);
  EXPECT_EQ(code_of({failed(0, 1, ErrorKind::Resumable), failed(1, 1, ErrorKind::Resumable)}, SIGTERM), 75);
  EXPECT_EQ(code_of({exited(0, 1, 42), stopped(1, 1, SIGTERM)}), 42);
}

TEST(GroupExitCode, OfAnInterruptedGroup) {
  EXPECT_EQ(code_of({stopped(0, 1, SIGINT), stopped(1, 1, SIGINT)}, SIGINT), 130);
  EXPECT_EQ(code_of({exited(0, 1, 75), exited(1, 1, 75)}, SIGTERM), 75);
  EXPECT_EQ(code_of({exited(0, 1, 0), exited(1, 1, 0)}, SIGTERM), 0) << "the run had come to its end";
  EXPECT_EQ(code_of({exited(0, 1, 75), stopped(1, 1, SIGKILL)}, SIGTERM), 143) << "not all saved";
  EXPECT_EQ(code_of({failed(0, 1, ErrorKind::Peer), stopped(1, 1, SIGTERM)}, SIGTERM), 143);
  EXPECT_EQ(code_of({failed(0, 1, ErrorKind::Environment), stopped(1, 1, SIGTERM)}, SIGTERM), 4) << "disk full at save";
}

TEST(ForeignEnd, ExitCodesMeanNothingBeyondZero) {
  for (const int status : {1, 2, 5, 6, 75, 255}) {
    const WorkerEnd end = {.exit_status = status, .is_foreign = true};
    EXPECT_EQ(classify(end), EndClass::Failure) << status;
    EXPECT_EQ(error_kind(end), std::nullopt) << status;
    EXPECT_EQ(exit_code(end), status);
    const std::vector<WorkerEnd> ends = {end};
    EXPECT_EQ(group_exit_code(ends, first_cause(ends), 0), status);
  }
  EXPECT_EQ(classify({.exit_status = 0, .is_foreign = true}), EndClass::Orderly);
  EXPECT_EQ(classify({.exit_status = 3, .signals_sent = uint64_t{1} << SIGTERM, .is_foreign = true}), EndClass::Orderly);
}

TEST(ForeignEnd, ARecordFromBeforeTheStopMakesItAFailure) {
  WorkerEnd end = {.exit_status = 1, .signals_sent = uint64_t{1} << SIGTERM, .stop_time = 20, .is_foreign = true};
  end.torch_error = TorchError{.time = 19};
  EXPECT_EQ(classify(end), EndClass::Failure);
  end.torch_error->time = 21;
  EXPECT_EQ(classify(end), EndClass::Orderly);
}

TEST(ForeignEnd, ItsRecordTellsWhenItFailed) {
  std::vector<WorkerEnd> ends = {{.world_rank = 0, .exit_status = 1, .time = 10.2, .is_foreign = true},
                                 {.world_rank = 1, .exit_status = 1, .time = 12.0, .is_foreign = true}};
  EXPECT_EQ(first_cause(ends)->world_rank, 0);
  ends[1].torch_error = TorchError{.time = 10.1};
  EXPECT_EQ(first_cause(ends)->world_rank, 1);
}

}  // namespace
}  // namespace lockstep::launch
