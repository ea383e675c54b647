#include "lockstep/launch/host_list.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace lockstep::launch {
namespace {

constexpr size_t kMostDigits = 18;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
}

std::string shown(char c) {
  const auto code = static_cast<unsigned char>(c);
  return code > 32 && code < 127 ? fmt::format("'{}'", c) : fmt::format("the byte {}", code);
}

class HostListParser {
 public:
  HostListParser(std::string_view text, std::string_view origin, const HostListLimits& limits)
      : text_(text), origin_(origin), limits_(limits) {}

  std::vector<std::string> parse() {
    if (text_.size() > limits_.max_text) {
      throw Error::usage("{}: a host list of {} characters; at most {} are read.", origin_, text_.size(),
                         limits_.max_text);
    }
    if (text_.empty()) return {};
    while (true) {
      read_item();
      if (at_ == text_.size()) return std::move(hosts_);
      ++at_;  // the comma
      if (at_ == text_.size()) fail(at_ - 1, "a name must follow the comma");
    }
  }

 private:
  [[noreturn]] void fail(size_t where, const std::string& problem) const {
    constexpr size_t kAround = 40;
    const size_t begin = where > kAround ? where - kAround : 0;
    std::string excerpt;
    for (char c : text_.substr(begin, 2 * kAround)) excerpt += c >= 32 && c < 127 ? c : '?';
    throw Error::usage("{}={}{}{}, character {}: {}. A host list looks like node[01-16],login.", origin_,
                       begin > 0 ? "..." : "", excerpt, begin + 2 * kAround < text_.size() ? "..." : "", where + 1,
                       problem);
  }

  bool more() const { return at_ < text_.size() && text_[at_] != ','; }

  /// One name between commas, with its groups and its repetition.
  void read_item() {
    const size_t begin = at_;
    std::vector<std::string> names{""};
    while (more() && text_[at_] != '*') {
      const char c = text_[at_];
      if (c == '[') {
        read_group(names);
      } else if (is_name_character(c)) {
        read_plain(names);
      } else {
        fail(at_, shown(c) + " cannot be part of a host name");
      }
    }
    if (at_ == begin) fail(at_, "a name is missing before " + (more() ? shown(text_[at_]) : "the comma"));
    const uint64_t repeats = more() ? read_repeats() : 1;
    if (names.size() * repeats > limits_.max_hosts - hosts_.size()) fail_too_many(begin);
    for (const std::string& name : names) hosts_.insert(hosts_.end(), repeats, name);
  }

  void read_plain(std::vector<std::string>& names) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
    const std::string_view part = text_.substr(begin, at_ - begin);
    for (std::string& name : names) append(name, part, begin);
  }

  void append(std::string& name, std::string_view part, size_t where) const {
    if (name.size() + part.size() > limits_.max_name) {
      fail(where, fmt::format("a host name of more than {} characters", limits_.max_name));
    }
    name += part;
  }

  [[noreturn]] void fail_too_many(size_t where) const {
    fail(where, fmt::format("more than {} hosts", limits_.max_hosts));
  }

  /// Every name so far with every number of the group.
  void read_group(std::vector<std::string>& names) {
    const size_t begin = at_++;
    std::vector<std::string> numbers;
    while (true) {
      read_range(numbers, begin);
      if (text_[at_] == ']') break;
      ++at_;  // the comma
    }
    ++at_;
    if (names.size() * numbers.size() > limits_.max_hosts - hosts_.size()) fail_too_many(begin);
    std::vector<std::string> longer;
    longer.reserve(names.size() * numbers.size());
    const auto add = [&](const std::string& name, const std::string& number) {
      longer.push_back(name);
      append(longer.back(), number, begin);
    };
    if (is_last_group()) {
      for (const std::string& name : names) {
        for (const std::string& number : numbers) add(name, number);
      }
    } else {
      for (const std::string& number : numbers) {
        for (const std::string& name : names) add(name, number);
      }
    }
    names = std::move(longer);
  }

  bool is_last_group() const {
    const size_t next = text_.find_first_of("[,", at_);
    return next == std::string_view::npos || text_[next] == ',';
  }

  /// "7" or "008-010"; ends at a comma or the closing bracket.
  void read_range(std::vector<std::string>& numbers, size_t group) {
    const size_t begin = at_;
    size_t width = 0;
    const uint64_t first = read_number(group, width);
    uint64_t last = first;
    if (at_ < text_.size() && text_[at_] == '-') {
      ++at_;
      size_t unused = 0;
      last = read_number(group, unused);
    }
    if (at_ == text_.size()) fail(group, "the bracket is not closed");
    if (text_[at_] != ',' && text_[at_] != ']') {
      fail(at_, shown(text_[at_]) + " stands where a number, '-', ',' or ']' is needed");
    }
    if (last < first) fail(begin, fmt::format("the range runs from {} down to {}", first, last));
    if (last - first >= limits_.max_hosts - std::min(numbers.size(), limits_.max_hosts)) fail_too_many(begin);
    for (uint64_t number = first; number <= last; ++number) numbers.push_back(fmt::format("{:0{}}", number, width));
  }

  uint64_t read_number(size_t group, size_t& width) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    width = at_ - begin;
    if (width == 0) {
      if (at_ == text_.size()) fail(group, "the bracket is not closed");
      fail(at_, "a number is missing before " + shown(text_[at_]));
    }
    if (width > kMostDigits) fail(begin, fmt::format("a number of more than {} digits", kMostDigits));
    uint64_t value = 0;
    std::from_chars(text_.data() + begin, text_.data() + at_, value);
    return value;
  }

  uint64_t read_repeats() {
    const size_t star = at_++;
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    const size_t digits = at_ - begin;
    uint64_t repeats = 0;
    if (digits > 0 && digits <= kMostDigits) {
      std::from_chars(text_.data() + begin, text_.data() + at_, repeats);
    }
    if (more() || repeats == 0) fail(star, "'*' must be followed by how often the name is repeated, then a comma");
    if (repeats > limits_.max_hosts) fail_too_many(star);
    return repeats;
  }

  std::string_view text_;
  std::string_view origin_;
  const HostListLimits& limits_;
  size_t at_ = 0;
  std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::string> parse_host_list(std::string_view text, std::string_view origin, const HostListLimits& limits) {
  return HostListParser(text, origin, limits).parse();
}

}  // namespace lockstep::launch
