#include "lockstep/metrics/tensorboard.h"

#include "lockstep/base/error.h"
#include "lockstep/metrics/crc32c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <map>

namespace lockstep::metrics {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising.push_back(static_cast<char>(i));
    falling.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c(falling), 0x113FDB5CU);
}

TEST(Crc32c, MaskIsTfRecords) {
  // The first record of every event file that TensorFlow writes has 24 bytes: 18 00 ... 00, a3 7f 4b 22.
  EXPECT_EQ(masked_crc32c(std::string("\x18\0\0\0\0\0\0\0", 8)), 0x224B7FA3U);
  EXPECT_EQ(encode_file_version(1).size(), 24U);
}

// ---- a reader of its own: protobuf's wire format, nothing shared with the writer -------------------------------------

struct FieldValue {
  int wire_type = 0;
  uint64_t number = 0;  ///< varint, or the bits of a fixed one
  std::string bytes;
};
using Fields = std::multimap<int, FieldValue>;

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

uint64_t take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(rest.at(0));
    rest.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

Fields decode(std::string_view rest) {
  Fields fields;
  while (!rest.empty()) {
    const uint64_t key = take_varint(rest);
    FieldValue field{static_cast<int>(key & 7), 0, {}};
    size_t length = 0;
    if (field.wire_type == 0) {
      field.number = take_varint(rest);
    } else if (field.wire_type == 2) {
      length = take_varint(rest);
    } else {
      length = field.wire_type == 1 ? 8 : 4;
    }
    if (length > rest.size()) throw std::out_of_range("a field is longer than its message");
    field.bytes = rest.substr(0, length);
    if (field.wire_type == 1 || field.wire_type == 5) field.number = little_endian(field.bytes);
    rest.remove_prefix(length);
    fields.emplace(static_cast<int>(key >> 3), field);
  }
  return fields;
}

const FieldValue& only(const Fields& fields, int number) {
  EXPECT_EQ(fields.count(number), 1U) << "field " << number;
  return fields.find(number)->second;
}

template <class Number, class Bits>
Number number_of(const FieldValue& field) {
  const auto bits = static_cast<Bits>(field.number);
  Number number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

/// Bit by bit, without a table.
uint32_t slow_masked_crc(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

/// The payloads of whole, sound records; the rest is what is cut at the end.
std::vector<std::string> records_of(std::string_view file, std::string_view* rest = nullptr) {
  std::vector<std::string> payloads;
  while (file.size() >= 12) {
    const uint64_t length = little_endian(file.substr(0, 8));
    EXPECT_EQ(little_endian(file.substr(8, 4)), slow_masked_crc(file.substr(0, 8)));
    if (file.size() < length + 16) break;
    const std::string_view payload = file.substr(12, length);
    EXPECT_EQ(little_endian(file.substr(12 + length, 4)), slow_masked_crc(payload));
    payloads.emplace_back(payload);
    file.remove_prefix(length + 16);
  }
  if (rest != nullptr) *rest = file;
  return payloads;
}

std::vector<std::pair<std::string, float>> scalars_of(const Fields& event) {
  std::vector<std::pair<std::string, float>> scalars;
  const Fields values = decode(only(event, 5).bytes);
  for (const auto& [number, value] : values) {
    EXPECT_EQ(number, 1);
    const Fields fields = decode(value.bytes);
    EXPECT_EQ(only(fields, 2).wire_type, 5);
    scalars.emplace_back(only(fields, 1).bytes, number_of<float, uint32_t>(only(fields, 2)));
  }
  return scalars;
}

// ---- claims ------------------------------------------------------------------------------------------------------------

TEST(EventMessages, ScalarsHoldTagStepTimeAndValue) {
  const std::vector<Scalar> logged = {{"loss", 0.5}, {"eval_accuracy", 0.75}, {"learning_rate", 1e-5}};
  const Fields event = decode(encode_scalars(1700000000.25, 300, logged));
  EXPECT_EQ((number_of<double, uint64_t>(only(event, 1))), 1700000000.25);
  EXPECT_EQ(only(event, 2).number, 300U);
  EXPECT_THAT(scalars_of(event),
              ElementsAre(Pair("train/loss", 0.5F), Pair("eval/accuracy", 0.75F), Pair("train/learning_rate", 1e-5F)));
}

TEST(EventMessages, TextIsAnItemOfTheTextPlugin) {
  const std::string text = "{\"a\": 1}\n" + std::string(300, 'x');
  const Fields event = decode(encode_text(1.0, "args", text));
  const Fields value = decode(only(decode(only(event, 5).bytes), 1).bytes);
  EXPECT_EQ(only(value, 1).bytes, "args/text_summary");
  const Fields plugin = decode(only(decode(only(value, 9).bytes), 1).bytes);
  EXPECT_EQ(only(plugin, 1).bytes, "text");
  const Fields tensor = decode(only(value, 8).bytes);
  EXPECT_EQ(only(tensor, 1).number, 7U) << "DT_STRING";
  EXPECT_EQ(only(decode(only(decode(only(tensor, 2).bytes), 2).bytes), 1).number, 1U) << "shape [1]";
  EXPECT_EQ(only(tensor, 8).bytes, text);
}

TEST(EventMessages, VersionAndRestart) {
  EXPECT_EQ(only(decode(encode_file_version(2.5)), 3).bytes, "brain.Event:2");
  const Fields restart = decode(encode_restart(2.5, 1000000));
  EXPECT_EQ(only(restart, 2).number, 1000000U);
  EXPECT_EQ(only(decode(only(restart, 7).bytes), 1).number, 1U) << "START";
}

TEST(ScalarTag, IsHuggingFaces) {
  EXPECT_EQ(scalar_tag("loss"), "train/loss");
  EXPECT_EQ(scalar_tag("train_runtime"), "train/train_runtime");
  EXPECT_EQ(scalar_tag("eval_loss"), "eval/loss");
  EXPECT_EQ(scalar_tag("test_f1"), "test/f1");
  EXPECT_EQ(scalar_tag("evaluation"), "train/evaluation");
}

TEST(EventFolder, IsHuggingFaces) {
  std::tm time{};
  time.tm_mon = 10;
  time.tm_mday = 3;
  time.tm_hour = 9;
  time.tm_min = 5;
  time.tm_sec = 59;
  EXPECT_EQ(event_folder("out", {}, time, "node7").string(), "out/runs/Nov03_09-05-59_node7");
  EXPECT_EQ(event_folder("out", "", time, "node7").string(), "out/runs/Nov03_09-05-59_node7");
  EXPECT_EQ(event_folder("out", "logs/a", time, "node7").string(), "logs/a");
  EXPECT_THAT(event_folder_now("out").string(), testing::StartsWith("out/runs/"));
}

TEST(EventFile, IsReadableAfterEveryCall) {
  const TempFolder folder("lockstep-events");
  EventFile file(folder.path() / "runs" / "a");
  EXPECT_THAT(file.path().filename().string(), testing::StartsWith("events.out.tfevents."));
  const std::vector<Scalar> first = {{"loss", 2}}, second = {{"loss", 1}, {"epoch", 0.5}};
  file.scalars(1, first);
  EXPECT_EQ(records_of(read_file(file.path())).size(), 2U);
  file.scalars(2, second);
  file.scalars(3, {});
  file.text("args", "{}");
  const auto records = records_of(read_file(file.path()));
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(only(decode(records[0]), 3).bytes, "brain.Event:2");
  EXPECT_THAT(scalars_of(decode(records[1])), ElementsAre(Pair("train/loss", 2.0F)));
  EXPECT_EQ(only(decode(records[2]), 2).number, 2U);
  EXPECT_THAT(scalars_of(decode(records[2])), ElementsAre(Pair("train/loss", 1.0F), Pair("train/epoch", 0.5F)));
}

TEST(EventFile, LeavesEarlierFilesAloneAndTellsWhereItGoesOn) {
  const TempFolder folder("lockstep-events");
  const std::vector<Scalar> loss = {{"loss", 2}};
  EventFile first(folder.path());
  first.scalars(7, loss);
  const std::string before = read_file(first.path());
  EventFile second(folder.path(), 5);
  second.scalars(6, loss);
  EXPECT_NE(first.path().string(), second.path().string());
  EXPECT_EQ(read_file(first.path()), before);
  const auto records = records_of(read_file(second.path()));
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(only(decode(records[1]), 2).number, 6U);
  EXPECT_EQ(decode(records[1]).count(7), 1U);
}

TEST(EventFile, EndsWithAWholeRecordWhenTheDiskIsFull) {
  const TempFolder folder("lockstep-events");
  EventFile file(folder.path());
  const std::vector<Scalar> loss = {{"loss", 2}};
  file.scalars(1, loss);
  const auto size = fs::file_size(file.path());

  // A limit on the size of files stands for the full disk: the record is written in part.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{size + 10, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string message;
  try {
    file.scalars(2, loss);
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_THAT(message, HasSubstr(file.path().string()));
  EXPECT_EQ(fs::file_size(file.path()), size);
  file.scalars(2, loss);
  std::string_view rest;
  const std::string content = read_file(file.path());
  EXPECT_EQ(records_of(content, &rest).size(), 3U);
  EXPECT_TRUE(rest.empty());
}

TEST(EventFile, SaysWhereItCannotWrite) {
  const TempFolder folder("lockstep-events");
  write_file_atomically(folder.path() / "file", "x");
  try {
    EventFile file(folder.path() / "file" / "runs");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_THAT(error.what(), HasSubstr("file/runs"));
  }
}

}  // namespace
}  // namespace lockstep::metrics
