#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep::fuzz {

/// Makes new inputs from old ones by small changes: bits, bytes, numbers (as bytes or as digits), words of a language,
/// pieces left out, doubled, moved or taken from another input. The same seed gives the same inputs.
class Mutator {
 public:
  Mutator(uint64_t seed, std::vector<std::string> words, size_t max_bytes);

  /// `input` after one to eight changes, some with bytes of `other`; at most max_bytes long.
  std::string change(std::string input, const std::string& other);
  /// Bytes that mean nothing, at most `max_size`.
  std::string random_bytes(size_t max_size);
  /// A number below `end` (> 0).
  size_t below(size_t end) { return static_cast<size_t>(random_() % end); }

 private:
  void change_once(std::string& input, const std::string& other);
  void change_number(std::string& input, size_t at);
  void change_digits(std::string& input, size_t at);
  std::string piece(const std::string& of);

  std::mt19937_64 random_;
  std::vector<std::string> words_;
  size_t max_bytes_;
};

}  // namespace lockstep::fuzz
