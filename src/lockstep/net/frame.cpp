#include "lockstep/net/frame.h"

#include "lockstep/base/error.h"

#include <utility>

namespace lockstep::net {
namespace {

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8U | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

ParsedFrame parse_frame(std::string_view bytes, size_t max_payload_bytes) {
  ParsedFrame parsed;
  if (bytes.size() < 4) return parsed;
  parsed.length = static_cast<uint32_t>(little_endian(bytes.substr(0, 4)));
  if (parsed.length > max_payload_bytes) {
    parsed.state = ParsedFrame::State::TooLarge;
  } else if (bytes.size() >= kFrameHeaderBytes + parsed.length) {
    parsed.state = ParsedFrame::State::Complete;
    parsed.frame = {static_cast<uint8_t>(bytes[4]), bytes.substr(kFrameHeaderBytes, parsed.length),
                    kFrameHeaderBytes + parsed.length};
  }
  return parsed;
}

void FieldWriter::append(uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i) & 0xffU));
}

void FieldWriter::operator()(std::string_view value) {
  count(value.size());
  bytes_.append(value);
}

void FieldWriter::operator()(const std::vector<std::string>& values) {
  count(values.size());
  for (const std::string& value : values) (*this)(std::string_view(value));
}

std::string FieldWriter::frame(uint8_t type) const {
  FieldWriter framed;
  framed.bytes_.reserve(kFrameHeaderBytes + bytes_.size());
  framed.count(bytes_.size());
  framed(type);
  framed.bytes_.append(bytes_);
  return std::move(framed.bytes_);
}

void FieldReader::refuse(std::string problem) {
  if (!problem_.empty()) return;
  problem_ = std::move(problem);
  rest_ = {};
}

uint64_t FieldReader::take(size_t num_bytes) {
  if (rest_.size() < num_bytes) {
    refuse(fmt::format("a field of {} bytes where {} are left", num_bytes, rest_.size()));
    return 0;
  }
  const uint64_t value = little_endian(rest_.substr(0, num_bytes));
  rest_.remove_prefix(num_bytes);
  return value;
}

void FieldReader::operator()(bool& value) {
  const uint64_t byte = take(1);
  if (byte > 1) refuse(fmt::format("a truth value of {}", byte));
  value = byte == 1;
}

void FieldReader::operator()(std::string& value) {
  const size_t length = count(1);
  value = rest_.substr(0, length);
  rest_.remove_prefix(length);
}

void FieldReader::operator()(std::vector<std::string>& values) {
  values.resize(count(4));
  for (std::string& value : values) (*this)(value);
  if (!ok()) values.clear();
}

size_t FieldReader::count(size_t min_element_bytes) {
  const uint64_t value = take(4);
  if (value > rest_.size() / min_element_bytes) {
    refuse(fmt::format("a count of {} where {} bytes are left", value, rest_.size()));
    return 0;
  }
  return static_cast<size_t>(value);
}

void FieldReader::finish() {
  if (ok() && !rest_.empty()) refuse(fmt::format("{} bytes too many", rest_.size()));
}

}  // namespace lockstep::net
