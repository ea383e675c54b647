#pragma once

#include <cstddef>
#include <memory>

/// Memory of a grain's activations. They are freed in the reverse order a moment before those of the next grain are asked
/// for, never of quite the same size; a general allocator returns such blocks to the kernel, which clears their pages
/// again. An arena keeps its pages, in huge ones where the machine has them, and its blocks lie from the lowest address up.
namespace lockstep::tensor {

/// While it lives, large CPU tensors (from kLeastArenaBytes) that this thread makes come from an arena that no other scope
/// uses. Tensors may outlive the scope and be freed by any thread. Scopes do not nest.
/// Under AddressSanitizer nothing changes: it could not watch blocks of an arena.
class ArenaScope {
 public:
  ArenaScope();
  ~ArenaScope();
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
};

constexpr size_t kLeastArenaBytes = size_t{32} << 10;

struct ArenaUse {
  size_t arenas = 0;       ///< made so far: as many as scopes lived at once
  size_t live_blocks = 0;  ///< tensors that live in them
  size_t mapped_bytes = 0, highest_bytes = 0;  ///< address space, and how much of it was in use at most; sums over arenas
};
ArenaUse arena_use();

/// Gives the pages of arenas in which nothing lives back to the kernel: between phases that need them.
void release_idle_arenas();

}  // namespace lockstep::tensor
