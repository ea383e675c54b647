#include "lockstep/launch/failure_report.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

TEST(FailureReport, TellsTheCauseAndHowTheOthersEnded) {
  const std::vector<WorkerEnd> ends = {
      {.world_rank = 0, .pid = 10, .exit_status = 5, .time = 2.2,
       .record = ErrorRecord{.kind = ErrorKind::Peer, .message = "rank 1 is gone", .time = 2.1}},
      {.world_rank = 1, .pid = 11, .signal = SIGKILL, .time = 2, .phase = "update 12"},
      {.world_rank = 2, .pid = 12, .signal = SIGTERM, .time = 3, .signals_sent = uint64_t{1} << SIGTERM},
      {.world_rank = 3, .pid = 13, .signal = SIGTERM, .time = 3, .signals_sent = uint64_t{1} << SIGTERM},
  };
  EXPECT_EQ(failure_report(ends, first_cause(ends), 0),
            "lockstep: rank 1 (pid 11) failed first: killed by SIGKILL, exit code 137, during: update 12\n"
            "  hint: nothing in lockstep sent this signal. Most often it is the kernel running out of memory: see "
            "dmesg, and use fewer processes or smaller pieces (--grain_tokens, --gradient_checkpointing true).\n"
            "  others: rank 0 Peer error, exit code 5 (follows from it); ranks 2-3 stopped by lockstep\n"
            "  taken as the cause because: rank 0 reports a Peer error, which follows from it\n");
}

TEST(FailureReport, OfASingleWorkerSpeaksOfNoOthers) {
  const std::vector<WorkerEnd> ends = {
      {.world_rank = 0, .pid = 10, .exit_status = 3, .time = 2,
       .record = ErrorRecord{.kind = ErrorKind::Data, .message = "two\nlines", .phase = "read", .time = 2}}};
  EXPECT_EQ(failure_report(ends, first_cause(ends), 0),
            "lockstep: rank 0 (pid 10) failed: Data error, exit code 3, during: read\n  two\n  lines\n");
}

TEST(FailureReport, NamesTheShellsLimits) {
  const auto report_of = [](const WorkerEnd& end) {
    const std::vector<WorkerEnd> ends = {end};
    return failure_report(ends, first_cause(ends), 0);
  };
  const uint64_t limit = uint64_t{500} << 20;
  for (const WorkerEnd& end : {WorkerEnd{.exit_status = 127, .address_space_bytes = limit},
                               WorkerEnd{.signal = SIGABRT, .address_space_bytes = limit}}) {
    EXPECT_NE(report_of(end).find("500 MiB of address space (ulimit -v)"), std::string::npos) << report_of(end);
  }
  EXPECT_EQ(report_of({.exit_status = 2, .address_space_bytes = limit}).find("ulimit"), std::string::npos);
  EXPECT_NE(report_of({.exit_status = 127}).find("could not be loaded"), std::string::npos);
  EXPECT_NE(report_of({.signal = SIGXCPU}).find("ulimit -t"), std::string::npos);
  EXPECT_NE(report_of({.signal = SIGXCPU, .is_foreign = true}).find("ulimit -t"), std::string::npos);
}

TEST(FailureReport, NamesAWorkerThatLeftEarly) {
  const std::vector<WorkerEnd> ends = {{.world_rank = 3, .pid = 10, .left_early = true}};
  const std::string report = failure_report(ends, first_cause(ends), 0);
  EXPECT_NE(report.find("rank 3 (pid 10) failed: Environment error, exit code 4\n  it left with status 0 before"),
            std::string::npos) << report;
  EXPECT_NE(report.find("LD_PRELOAD"), std::string::npos) << report;
}

TEST(FailureReport, IsEmptyWhenNothingFailed) {
  const std::vector<WorkerEnd> ends = {{.world_rank = 0}, {.world_rank = 1, .exit_status = 75}};
  EXPECT_EQ(failure_report(ends, first_cause(ends), 0), "");
}

TEST(FailureReport, OfAnInterruptIsOneLine) {
  const std::vector<WorkerEnd> ends = {
      {.world_rank = 0, .exit_status = 5, .time = 1,
       .record = ErrorRecord{.kind = ErrorKind::Peer, .message = "rank 1 is gone", .time = 1}},
      {.world_rank = 1, .signal = SIGINT, .time = 1, .signals_sent = uint64_t{1} << SIGINT}};
  EXPECT_EQ(failure_report(ends, first_cause(ends), SIGINT),
            "lockstep: stopped by SIGINT: rank 0 Peer error, exit code 5 (follows from it); rank 1 stopped by "
            "lockstep\n");
}

TEST(FormatRanks, JoinsNeighbours) {
  EXPECT_EQ(format_ranks(std::vector<int>{}), "none");
  EXPECT_EQ(format_ranks(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(format_ranks(std::vector<int>{0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8");
}

TEST(SignalName, HasAFallback) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(45), "signal 45");
}

TEST(SilenceMessage, ExplainsTheState) {
  EXPECT_TRUE(silence_message(2, 77, 5.04, 'T').starts_with("rank 2 (pid 77) gave no sign of life for 5.0 s"));
  EXPECT_NE(silence_message(2, 77, 5, 'R').find("overloaded"), std::string::npos);
  EXPECT_NE(silence_message(2, 77, 5, 'D').find("disk"), std::string::npos);
}

TEST(StartMessage, ListsWhoIsMissingAndWhoIsThere) {
  const std::vector<int> missing = {1, 3};
  const std::vector<int> present = {0, 2};
  const std::string message = start_message(missing, present, 60);
  EXPECT_TRUE(message.starts_with("ranks 1, 3 did not start within 60.0 s (present: ranks 0, 2)")) << message;
  EXPECT_NE(start_message(present, {}, 60).find("(present: none)"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
