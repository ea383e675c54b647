#include "lockstep/metrics/tensorboard.h"

#include "lockstep/base/error.h"
#include "lockstep/metrics/crc32c.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace lockstep::metrics {
namespace {

/// Little-endian, as every number in these files.
template <class Integer>
void append_fixed(std::string& out, Integer value) {
  for (size_t i = 0; i < sizeof(value); ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
}

/// A protobuf message under construction (protobuf.dev, "Encoding").
class Message {
 public:
  Message& varint(int field, uint64_t value) {
    key(field, 0);
    raw_varint(value);
    return *this;
  }
  Message& fixed64(int field, double value) {
    key(field, 1);
    append_fixed(bytes_, std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& fixed32(int field, float value) {
    key(field, 5);
    append_fixed(bytes_, std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    raw_varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }
  const std::string& text() const { return bytes_; }

 private:
  void key(int field, int wire_type) { raw_varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  void raw_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>((value & 0x7F) | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

// Field numbers.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kSessionStatus = 1, kSessionStart = 1;
}  // namespace event
namespace summary {
constexpr int kValue = 1;
constexpr int kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;  // of a value
constexpr int kPluginData = 1, kPluginName = 1;                        // of its metadata
}  // namespace summary
namespace tensor_proto {
constexpr int kDtype = 1, kShape = 2, kStringVal = 8;
constexpr int kDim = 2, kDimSize = 1;  // of the shape
constexpr uint64_t kString = 7;        // DT_STRING
}  // namespace tensor_proto

Message event_at(double wall_time, int64_t step) {
  Message message;
  message.fixed64(event::kWallTime, wall_time);
  if (step != 0) message.varint(event::kStep, static_cast<uint64_t>(step));
  return message;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string own_host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

UniqueFd create_new_file(const fs::path& folder, fs::path& path) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  const auto seconds = static_cast<int64_t>(seconds_since_1970());
  for (int number = 0;; ++number) {
    path = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, own_host_name(), getpid(), number);
    UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
    if (fd.get() >= 0) return fd;
    if (errno != EEXIST) {
      throw Error::environment("{}: cannot be created: {}. Set TENSORBOARD_LOGGING_DIR or --output_dir to a folder that "
                               "can be written, or leave out --report_to tensorboard.",
                               path.string(), std::strerror(errno));
    }
  }
}

}  // namespace

std::string scalar_tag(std::string_view key) {
  if (key.starts_with("eval_")) return fmt::format("eval/{}", key.substr(5));
  if (key.starts_with("test_")) return fmt::format("test/{}", key.substr(5));
  return fmt::format("train/{}", key);
}

fs::path event_folder(const fs::path& output_dir, std::optional<std::string_view> logging_dir, const std::tm& local_time,
                      std::string_view host) {
  if (logging_dir && !logging_dir->empty()) return expand_user(std::string(*logging_dir));
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  LS_CHECK(local_time.tm_mon >= 0 && local_time.tm_mon < 12, "month {}", local_time.tm_mon);
  return output_dir / "runs" /
         fmt::format("{}{:02}_{:02}-{:02}-{:02}_{}", kMonths[local_time.tm_mon], local_time.tm_mday, local_time.tm_hour,
                     local_time.tm_min, local_time.tm_sec, host);
}

fs::path event_folder_now(const fs::path& output_dir) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  const char* logging_dir = std::getenv("TENSORBOARD_LOGGING_DIR");
  return event_folder(output_dir, logging_dir == nullptr ? std::optional<std::string_view>() : logging_dir, local,
                      own_host_name());
}

std::string frame_record(std::string_view payload) {
  std::string record;
  append_fixed(record, static_cast<uint64_t>(payload.size()));
  append_fixed(record, masked_crc32c(record));
  record += payload;
  append_fixed(record, masked_crc32c(payload));
  return record;
}

std::string encode_file_version(double wall_time) {
  return event_at(wall_time, 0).bytes(event::kFileVersion, "brain.Event:2").text();
}

std::string encode_restart(double wall_time, int64_t step) {
  const Message session = Message().varint(event::kSessionStatus, event::kSessionStart);
  return event_at(wall_time, step).message(event::kSessionLog, session).text();
}

std::string encode_scalars(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  Message values;
  for (const auto& [key, value] : scalars) {
    Message one;
    one.bytes(summary::kTag, scalar_tag(key)).fixed32(summary::kSimpleValue, static_cast<float>(value));
    values.message(summary::kValue, one);
  }
  return event_at(wall_time, step).message(event::kSummary, values).text();
}

std::string encode_text(double wall_time, std::string_view name, std::string_view text) {
  const Message plugin = Message().bytes(summary::kPluginName, "text");
  const Message dim = Message().varint(tensor_proto::kDimSize, 1);
  Message tensor;
  tensor.varint(tensor_proto::kDtype, tensor_proto::kString)
      .message(tensor_proto::kShape, Message().message(tensor_proto::kDim, dim))
      .bytes(tensor_proto::kStringVal, text);
  Message value;
  value.bytes(summary::kTag, fmt::format("{}/text_summary", name))
      .message(summary::kTensor, tensor)
      .message(summary::kMetadata, Message().message(summary::kPluginData, plugin));
  return event_at(wall_time, 0).message(event::kSummary, Message().message(summary::kValue, value)).text();
}

EventFile::EventFile(const fs::path& folder, std::optional<int64_t> resumed_at)
    : fd_(create_new_file(folder, path_)) {
  const double now = seconds_since_1970();
  append(encode_file_version(now));
  if (resumed_at) append(encode_restart(now, *resumed_at + 1));
}

void EventFile::scalars(int64_t step, std::span<const Scalar> scalars) {
  if (!scalars.empty()) append(encode_scalars(seconds_since_1970(), step, scalars));
}

void EventFile::text(std::string_view name, std::string_view text) {
  append(encode_text(seconds_since_1970(), name, text));
}

void EventFile::append(std::string_view payload) {
  const std::string record = frame_record(payload);
  size_t done = 0;
  while (done < record.size()) {
    const ssize_t count = write(fd_.get(), record.data() + done, record.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int reason = errno;
      // A reader stops for good at a record that is cut in the middle of a file.
      const bool whole = ftruncate(fd_.get(), size_) == 0;
      throw Error::environment("{}: writing failed: {}. Free some space.{}", path_.string(), std::strerror(reason),
                               whole ? "" : " Its last record is cut.");
    }
    done += static_cast<size_t>(count);
  }
  size_ += static_cast<int64_t>(record.size());
}

}  // namespace lockstep::metrics
