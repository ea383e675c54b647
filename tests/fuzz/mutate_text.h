#pragma once

#include "lockstep/base/deadline.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

/// Feeds `target` with `count` texts made from `seeds` by small changes: characters replaced by those of `alphabet` or
/// by any byte, inserted, removed, pieces doubled or joined from two seeds. Always the same texts. Stops early after
/// `longest`. Returns how many there were.
inline int mutate_text(const std::vector<std::string>& seeds, std::string_view alphabet,
                       int (*target)(const uint8_t*, size_t), int count = 20'000,
                       Milliseconds longest = Milliseconds(20'000)) {
  uint64_t state = 0x9E3779B97F4A7C15;
  const auto below = [&](size_t limit) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<size_t>((state >> 33) % limit);
  };
  const Deadline deadline = Deadline::in(longest);
  int done = 0;
  while (done < count && !deadline.passed()) {
    std::string text = seeds[below(seeds.size())];
    for (size_t changes = 1 + below(6); changes > 0; --changes) {
      const size_t at = below(text.size() + 1);
      const char c = below(8) == 0 ? static_cast<char>(below(256)) : alphabet[below(alphabet.size())];
      switch (below(5)) {
        case 0: text.insert(at, 1, c); break;
        case 1: text.erase(at, 1 + below(3)); break;
        case 2: text = text.substr(0, at) + seeds[below(seeds.size())]; break;
        case 3: text.insert(at, text.substr(at / 2, 1 + below(16))); break;
        default:
          if (at < text.size()) text[at] = c;
      }
    }
    target(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    ++done;
  }
  return done;
}

}  // namespace lockstep::fuzz
