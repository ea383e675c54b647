#include "fuzz/coverage.h"

#include <array>
#include <bit>
#include <cstdint>

// The linker's: the program's first byte, so that addresses do not depend on where it was loaded.
extern "C" const char __executable_start;

namespace lockstep::fuzz::coverage {
namespace {

constexpr unsigned kTableBits = 18;

struct Table {
  std::array<uint8_t, 1U << kTableBits> times{};    ///< of this call
  std::array<uint8_t, 1U << kTableBits> classes{};  ///< one bit each, of all calls
  std::array<uint32_t, 1U << kTableBits> touched{};
  size_t num_touched = 0;
  size_t num_edges = 0;
  uint64_t previous = 0;
};
Table table;

uint8_t class_of(uint8_t times) {
  if (times <= 3) return static_cast<uint8_t>(1U << (times - 1U));
  if (times >= 128) return 0x80;
  constexpr std::array<uint8_t, 8> kByWidth = {0, 0, 0, 0x08, 0x10, 0x20, 0x40, 0x40};
  return kByWidth[static_cast<size_t>(std::bit_width(times))];
}

}  // namespace

void begin() {
  for (size_t i = 0; i < table.num_touched; ++i) table.times[table.touched[i]] = 0;
  table.num_touched = 0;
  table.previous = 0;
}

bool add() {
  bool is_new = false;
  for (size_t i = 0; i < table.num_touched; ++i) {
    const uint32_t edge = table.touched[i];
    const uint8_t bit = class_of(table.times[edge]);
    if (table.classes[edge] == 0) ++table.num_edges;
    is_new |= (table.classes[edge] & bit) == 0;
    table.classes[edge] |= bit;
  }
  return is_new;
}

size_t num_edges() { return table.num_edges; }

void clear() {
  begin();
  table.classes.fill(0);
  table.num_edges = 0;
}

}  // namespace lockstep::fuzz::coverage

/// Called at the start of every block of instrumented code.
extern "C" __attribute__((visibility("default"))) void __sanitizer_cov_trace_pc() {
  auto& table = lockstep::fuzz::coverage::table;
  const auto here = reinterpret_cast<uintptr_t>(__builtin_return_address(0)) -
                    reinterpret_cast<uintptr_t>(&__executable_start);
  const uint64_t block = (here * 0x9E3779B97F4A7C15U) >> (64U - lockstep::fuzz::coverage::kTableBits);
  const auto edge = static_cast<uint32_t>(block ^ table.previous);
  table.previous = block >> 1U;
  uint8_t& times = table.times[edge];
  if (times == 0) table.touched[table.num_touched++] = edge;
  if (times < 255) ++times;
}
