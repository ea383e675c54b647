#pragma once

#include <cstdint>

namespace lockstep::text {

/// A stretch of a text, [start, end) in Unicode code points (not bytes), as Python's string indices.
struct Span {
  int64_t start = 0;
  int64_t end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace lockstep::text
