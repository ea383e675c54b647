#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// 1234567 -> "1,234,567"; `count` is not negative.
inline std::string grouped(int64_t count) {
  return count < 1000 ? std::to_string(count) : fmt::format("{},{:03}", grouped(count / 1000), count % 1000);
}

}  // namespace lockstep
