#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <span>

namespace lockstep {

/// 64-bit hash of bytes (XXH64 of Y. Collet's xxHash, checked against its published vectors).
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed = 0);

/// Hashes of numbered pieces combined by addition modulo 2^64: whoever holds a piece adds it, in any order, and the
/// sum over processes is the hash of the whole. Weaker than hashing in order; made for spotting where two runs part.
class PieceHash {
 public:
  void add(uint64_t piece_index, std::span<const std::byte> bytes) { value_ += hash_bytes(bytes, piece_index + 1); }
  void merge(uint64_t other) { value_ += other; }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

/// 16 lower-case hexadecimal digits.
std::string to_hex(uint64_t value);

}  // namespace lockstep
