#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::net {

/// Of the length and the type, before the payload.
inline constexpr size_t kFrameHeaderBytes = 5;

/// A frame on the wire: u32 length of the payload, u8 type, payload. Numbers are little-endian.
struct Frame {
  uint8_t type = 0;
  std::string_view payload = {};  ///< points into the bytes that were parsed
  size_t size_bytes = 0;          ///< of the whole frame: consume so many
};

struct ParsedFrame {
  enum class State { Complete, Incomplete, TooLarge };
  State state = State::Incomplete;
  Frame frame = {};
  uint32_t length = 0;  ///< what the frame says of its payload; meaningful unless Incomplete
};

/// The frame at the start of `bytes`. Too large is told from the first four bytes.
ParsedFrame parse_frame(std::string_view bytes, size_t max_payload_bytes);

/// Writes fields one after the other. Strings and lists are a u32 count and their elements. Writer and reader have the
/// same operations, so that a message names its fields once: template <class V> void visit(V& v) { v(a), v(b); }
class FieldWriter {
 public:
  void operator()(bool value) { append(value ? 1 : 0, 1); }
  void operator()(uint8_t value) { append(value, 1); }
  void operator()(uint16_t value) { append(value, 2); }
  void operator()(uint32_t value) { append(value, 4); }
  void operator()(uint64_t value) { append(value, 8); }
  void operator()(int32_t value) { append(static_cast<uint32_t>(value), 4); }
  void operator()(int64_t value) { append(static_cast<uint64_t>(value), 8); }
  void operator()(std::string_view value);
  void operator()(const std::vector<std::string>& values);
  /// A count; the elements follow by the caller.
  void count(size_t value) { append(value, 4); }
  /// An enumeration of one byte, whose last value is `last`.
  template <class E>
  void choice(E value, E /*last*/) {
    append(static_cast<uint64_t>(value), 1);
  }
  template <class T>
  void count_of(const std::vector<T>& values, size_t /*min_element_bytes*/) {
    count(values.size());
  }
  template <class T>
  void list(std::vector<T>& values, size_t min_element_bytes) {
    count_of(values, min_element_bytes);
    for (T& value : values) value.visit(*this);
  }
  template <class T>
  void optional(std::optional<T>& value) {
    (*this)(value.has_value());
    if (value) value->visit(*this);
  }

  const std::string& bytes() const { return bytes_; }
  /// The fields so far as the payload of a frame.
  std::string frame(uint8_t type) const;

 private:
  void append(uint64_t value, int num_bytes);
  std::string bytes_;
};

/// Reads what a FieldWriter wrote. Never reads beyond the end: from the first field that does not fit, all values are
/// zero or empty and problem() tells what was wrong. Nothing is allocated for more than what the bytes can hold.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  void operator()(bool& value);
  void operator()(uint8_t& value) { value = static_cast<uint8_t>(take(1)); }
  void operator()(uint16_t& value) { value = static_cast<uint16_t>(take(2)); }
  void operator()(uint32_t& value) { value = static_cast<uint32_t>(take(4)); }
  void operator()(uint64_t& value) { value = take(8); }
  void operator()(int32_t& value) { value = static_cast<int32_t>(static_cast<uint32_t>(take(4))); }
  void operator()(int64_t& value) { value = static_cast<int64_t>(take(8)); }
  void operator()(std::string& value);
  void operator()(std::vector<std::string>& values);
  /// Of elements that take at least `min_element_bytes` (> 0) each.
  size_t count(size_t min_element_bytes);
  template <class E>
  void choice(E& value, E last) {
    const uint64_t read = take(1);
    if (read > static_cast<uint64_t>(last)) refuse("a number that stands for nothing");
    value = ok() ? static_cast<E>(read) : E{};
  }
  template <class T>
  void count_of(std::vector<T>& values, size_t min_element_bytes) {
    values.resize(count(min_element_bytes));
  }
  template <class T>
  void list(std::vector<T>& values, size_t min_element_bytes) {
    count_of(values, min_element_bytes);
    for (T& value : values) value.visit(*this);
  }
  template <class T>
  void optional(std::optional<T>& value) {
    bool present = false;
    (*this)(present);
    if (present) value.emplace().visit(*this);
  }

  /// Sets the problem unless there is one already.
  void refuse(std::string problem);
  /// Call last: bytes that are left over are a problem too.
  void finish();
  bool ok() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }

 private:
  uint64_t take(size_t num_bytes);
  std::string_view rest_;
  std::string problem_;
};

}  // namespace lockstep::net
