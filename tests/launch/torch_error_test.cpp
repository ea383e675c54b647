#include "lockstep/launch/torch_error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdlib>
#include <ctime>

namespace lockstep::launch {
namespace {

class TorchErrors : public testing::Test {
 protected:
  TorchErrors() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
  std::string write(const std::string& text) {
    write_file_atomically(folder_.path() / "error.json", text);
    return (folder_.path() / "error.json").string();
  }
  TempFolder folder_{"launch-test"};
};

constexpr const char* kRecord =
    R"({"message": {"message": "ValueError: no such layer", "extraInfo": {"py_callstack": )"
    R"("Traceback (most recent call last):\n  File \"train.py\", line 3\nValueError: no such layer\n", )"
    R"("timestamp": "1600000000"}}})";

TEST_F(TorchErrors, AreReadInBothForms) {
  const auto object = read_torch_error(write(kRecord));
  ASSERT_TRUE(object.has_value());
  EXPECT_EQ(object->message, "ValueError: no such layer");
  EXPECT_TRUE(object->traceback.starts_with("Traceback"));
  EXPECT_EQ(object->timestamp, 1600000000);
  const auto plain = read_torch_error(write(R"({"message": "out of beans", "timestamp": 1500000000})"));
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->message, "out of beans");
  EXPECT_EQ(plain->timestamp, 1500000000);
  EXPECT_EQ(plain->traceback, "");
}

TEST_F(TorchErrors, ThatAreAbsentOrBrokenDoNoHarm) {
  EXPECT_FALSE(read_torch_error("").has_value());
  EXPECT_FALSE(read_torch_error((folder_.path() / "none").string()).has_value());
  for (const char* text : {"{", "[]", R"({"other": 1})", ""}) {
    const auto broken = read_torch_error(write(text));
    ASSERT_TRUE(broken.has_value()) << text;
    EXPECT_NE(broken->message.find("cannot be understood"), std::string::npos) << text;
  }
}

TEST_F(TorchErrors, ATimeThatIsNoneCountsAsAbsent) {
  for (const char* time : {"1e300", "-1", "67768036191676799", "\"inf\"", "\"soon\"", "[]"}) {
    EXPECT_EQ(parse_torch_error(fmt::format(R"({{"message": "m", "timestamp": {}}})", time)).timestamp, 0) << time;
  }
  EXPECT_EQ(parse_torch_error(R"({"message": "m", "timestamp": 253402300799})").timestamp, 253402300799);
}

TEST_F(TorchErrors, AFileOfBracketsIsRefusedInsteadOfFillingTheStack) {
  const std::string deep = R"({"message": {"a": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}}";
  TorchError error{.path = write(deep)};
  EXPECT_NE(read_torch_error(error.path)->message.find("nested more than 100 deep"), std::string::npos);
  EXPECT_NE(hand_up_torch_error(error, 3, folder_.path() / "parent.json").find("nested more than 100 deep"),
            std::string::npos);
}

TEST_F(TorchErrors, AreHandedUpWithTheExitCode) {
  TorchError error{.path = write(kRecord)};
  const fs::path target = folder_.path() / "parent.json";
  EXPECT_EQ(hand_up_torch_error(error, -9, target), "");
  const auto json = nlohmann::json::parse(read_file(target));
  EXPECT_EQ(json["message"]["errorCode"], -9);
  EXPECT_EQ(json["message"]["message"], "ValueError: no such layer");
  error.path = write(R"({"message": "out of beans"})");
  EXPECT_EQ(hand_up_torch_error(error, 3, target), "");
  EXPECT_EQ(read_file(target), R"({"message":"out of beans"})");
  EXPECT_NE(hand_up_torch_error(error, 3, "/nowhere/x.json"), "");
}

TEST_F(TorchErrors, SummaryOfOneFailure) {
  const std::vector<WorkerEnd> ends = {
      {.world_rank = 4, .local_rank = 0, .pid = 100, .signal = SIGTERM, .time = 1600000001,
       .signals_sent = uint64_t{1} << SIGTERM, .is_foreign = true},
      {.world_rank = 5, .local_rank = 1, .pid = 101, .exit_status = 7, .time = 1600000000, .is_foreign = true}};
  EXPECT_EQ(torchrun_summary("train.py", "n0", ends, *first_cause(ends)),
            "============================================================\n"
            "train.py FAILED\n"
            "------------------------------------------------------------\n"
            "Failures:\n"
            "  <NO_OTHER_FAILURES>\n"
            "------------------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 2020-09-13_12:26:40\n"
            "  host      : n0\n"
            "  rank      : 5 (local_rank: 1)\n"
            "  exitcode  : 7 (pid: 101) \n"
            "  error_file: <N/A>\n"
            "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
            "============================================================\n");
}

TEST_F(TorchErrors, SummaryOfARecordedAndASignalledFailure) {
  std::vector<WorkerEnd> ends = {
      {.world_rank = 0, .local_rank = 0, .pid = 100, .signal = SIGKILL, .time = 1600000003, .is_foreign = true},
      {.world_rank = 1, .local_rank = 1, .pid = 101, .exit_status = 1, .time = 1600000005, .is_foreign = true}};
  ends[1].torch_error = TorchError{.path = "/l/1/error.json", .message = "ValueError: x",
                                   .traceback = "Traceback:\nValueError: x\n", .timestamp = 1600000000, .time = 1600000000.5};
  // The record tells that rank 1 failed before rank 0 was killed, though it took longer to end.
  ASSERT_EQ(first_cause(ends)->world_rank, 1);
  EXPECT_EQ(torchrun_summary("a", "n", ends, *first_cause(ends)),
            "====================================================\n"
            "a FAILED\n"
            "----------------------------------------------------\n"
            "Failures:\n"
            "[0]:\n"
            "  time      : 2020-09-13_12:26:43\n"
            "  host      : n\n"
            "  rank      : 0 (local_rank: 0)\n"
            "  exitcode  : -9 (pid: 100)  (SIGKILL)\n"
            "  error_file: <N/A>\n"
            "  traceback : Signal 9 (SIGKILL) received by PID 100\n"
            "----------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[1]:\n"
            "  time      : 2020-09-13_12:26:40\n"
            "  host      : n\n"
            "  rank      : 1 (local_rank: 1)\n"
            "  exitcode  : 1 (pid: 101) \n"
            "  error_file: /l/1/error.json\n"
            "  traceback : Traceback:\n"
            "  ValueError: x\n"
            "  \n"
            "====================================================\n");
}

}  // namespace
}  // namespace lockstep::launch
