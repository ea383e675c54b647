#include "lockstep/launch/error_record.h"
#include "lockstep/launch/messages.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(Messages, EveryTypeComesBack) {
  using enum MessageType;
  for (const Message& message : {Message{Hello, ""}, Message{Beat, ""}, Message{Phase, "load the  model"},
                                 Message{Done, "in out/ (3 files)"}, Message{Failed, ""}}) {
    EXPECT_EQ(decode(encode(message)), message) << encode(message);
  }
  EXPECT_EQ(encode({Phase, "update 12"}), "phase update 12");
}

TEST(Messages, AnUnknownWordIsNoMessage) {
  for (const char* packet : {"", "helloo", "HELLO", " hello", "phases x"}) EXPECT_FALSE(decode(packet)) << packet;
}

TEST(Messages, ALongTextIsCut) {
  EXPECT_EQ(encode({MessageType::Phase, std::string(10'000, 'x')}).size(), kMaxMessageBytes);
}

TEST(ErrorRecord, ComesBackFromTheRunFolder) {
  const TempFolder folder("record");
  EXPECT_FALSE(read_error_record(folder.path(), 3));
  write_error_record(folder.path(), {.kind = ErrorKind::NonFinite, .message = "loss \"nan\"\nin \xff", .world_rank = 3,
                                     .pid = 42, .phase = "update 7", .time = 1234.5});
  const auto record = read_error_record(folder.path(), 3);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->kind, ErrorKind::NonFinite);
  EXPECT_EQ(record->message, "loss \"nan\"\nin \xEF\xBF\xBD");  // what is not UTF-8 is replaced
  EXPECT_EQ(record->world_rank, 3);
  EXPECT_EQ(record->pid, 42);
  EXPECT_EQ(record->phase, "update 7");
  EXPECT_EQ(record->time, 1234.5);
  EXPECT_FALSE(read_error_record(folder.path(), 0));
}

TEST(ErrorRecord, ABrokenOneIsAnErrorAndNotNothing) {
  const TempFolder folder("record");
  for (const char* content : {"", "{", "[]", "{\"kind\": 7}",
                              R"({"kind": "data", "message": "m", "pid": 4.7e20, "phase": "load", "time": 1})"}) {
    write_file_atomically(error_record_path(folder.path(), 0), content);
    const auto record = read_error_record(folder.path(), 0);
    ASSERT_TRUE(record) << content;
    EXPECT_EQ(record->kind, ErrorKind::Internal);
    EXPECT_NE(record->message.find("error-rank0.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::launch
