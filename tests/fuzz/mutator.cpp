#include "fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace lockstep::fuzz {
namespace {

constexpr size_t kLongestPiece = 64;
/// Where counters, lengths and signs turn over.
constexpr std::array<int64_t, 16> kEdges = {0,   1,      -1,     2,       7,     16,         127,        128,
                                            255, 32'767, 65'535, 65'536, 1 << 20, 2147483647, 2147483648, INT64_MAX};
constexpr std::array<const char*, 14> kDigits = {"0", "1", "2", "007", "-1", "255", "65535", "65536", "2147483647", "2147483648",
                                                 "4294967296", "9223372036854775807", "1e19", "0.5"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Mutator::Mutator(uint64_t seed, std::vector<std::string> words, size_t max_bytes)
    : random_(seed), words_(std::move(words)), max_bytes_(max_bytes) {}

std::string Mutator::random_bytes(size_t max_size) {
  std::string bytes(below(max_size + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random_());
  return bytes;
}

std::string Mutator::change(std::string input, const std::string& other) {
  for (size_t left = size_t{1} << below(4); left > 0; --left) change_once(input, other);
  if (input.size() > max_bytes_) input.resize(max_bytes_);
  return input;
}

std::string Mutator::piece(const std::string& of) {
  const size_t at = below(of.size() + 1);
  return of.substr(at, 1 + below(kLongestPiece));
}

void Mutator::change_once(std::string& input, const std::string& other) {
  const size_t at = below(input.size() + 1);
  const size_t length = 1 + below(below(4) == 0 ? kLongestPiece : 4);
  const bool on_byte = at < input.size();
  switch (below(12)) {
    case 0:
      if (on_byte) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
      break;
    case 1:
      if (on_byte) input[at] = static_cast<char>(random_());
      break;
    case 2: input.insert(at, 1, static_cast<char>(random_())); break;
    case 3: input.erase(at, length); break;
    case 4: input.insert(at, piece(input)); break;
    case 5: input.insert(at, piece(other)); break;
    case 6: input.replace(at, length, piece(other)); break;
    case 7: input = input.substr(0, at) + other.substr(below(other.size() + 1)); break;
    case 8: change_number(input, at); break;
    case 9: change_digits(input, at); break;
    case 10:
      if (below(8) == 0) input.resize(at);
      else if (on_byte) input.insert(at, length, input[at]);
      break;
    default:
      if (!words_.empty()) input.replace(at, below(2) * length, words_[below(words_.size())]);
  }
}

/// A little-endian number of 1, 2, 4 or 8 bytes.
void Mutator::change_number(std::string& input, size_t at) {
  const size_t width = size_t{1} << below(4);
  if (at + width > input.size()) return;
  auto value = static_cast<uint64_t>(kEdges[below(kEdges.size())]);
  if (below(2) == 0) {  // near what is there
    value = 0;
    for (size_t i = width; i-- > 0;) value = value << 8U | static_cast<uint8_t>(input[at + i]);
    value += below(2) == 0 ? 1 + below(8) : ~uint64_t{0} - below(8);
  }
  for (size_t i = 0; i < width; ++i) input[at + i] = static_cast<char>(value >> (8 * i));
}

/// The number in digits that stands at or behind `at`.
void Mutator::change_digits(std::string& input, size_t at) {
  const auto begin = std::find_if(input.begin() + static_cast<ptrdiff_t>(at), input.end(), is_digit);
  if (begin == input.end()) return;
  const auto end = std::find_if_not(begin, input.end(), is_digit);
  const std::string number = below(2) == 0 ? std::to_string(below(100)) : kDigits[below(kDigits.size())];
  input.replace(begin, end, number);
}

}  // namespace lockstep::fuzz
