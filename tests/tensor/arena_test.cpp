#include "lockstep/tensor/arena.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace lockstep::tensor {
namespace {

at::Tensor block(int64_t bytes) { return at::empty({bytes}, at::kByte); }
constexpr int64_t kMiB = int64_t{1} << 20;

#if defined(__SANITIZE_ADDRESS__)
TEST(Arena, StandsAsideForTheSanitizer) {
  const ArenaScope scope;
  const at::Tensor large = block(kMiB);
  EXPECT_EQ(arena_use().arenas, 0U);
}
#else

TEST(Arena, HoldsLargeTensorsOfItsThreadWhileTheScopeLives) {
  const at::Tensor before = block(kMiB);
  const size_t live = arena_use().live_blocks;
  {
    const ArenaScope scope;
    const at::Tensor large = block(kMiB), small = block(100);
    EXPECT_EQ(arena_use().live_blocks, live + 1);
    std::thread([&] {
      const at::Tensor of_other = block(kMiB);
      EXPECT_EQ(arena_use().live_blocks, live + 1);
    }).join();
  }
  const at::Tensor after = block(kMiB);
  EXPECT_EQ(arena_use().live_blocks, live);
}

TEST(Arena, IsUsedAgain) {
  const void* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    const ArenaScope scope;
    const at::Tensor a = block(3 * kMiB + 17), b = block(kMiB);
    if (round == 0) first = a.const_data_ptr();
    EXPECT_EQ(a.const_data_ptr(), first);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.const_data_ptr()) % 64, 0U);
  }
}

TEST(Arena, ScopesAtOnceHaveArenasOfTheirOwn) {
  const ArenaScope scope;
  const at::Tensor mine = block(kMiB);
  size_t at_once = 0;
  std::thread([&] {
    const ArenaScope other;
    const at::Tensor theirs = block(kMiB);
    at_once = arena_use().arenas;
  }).join();
  EXPECT_GE(at_once, 2U);
  std::thread([&] { const ArenaScope other; }).join();
  EXPECT_EQ(arena_use().arenas, at_once);
}

TEST(Arena, ATensorOutlivesItsScopeAndIsFreedElsewhere) {
  const size_t live = arena_use().live_blocks;
  at::Tensor kept;
  {
    const ArenaScope scope;
    kept = block(kMiB).fill_(7);
  }
  EXPECT_EQ(arena_use().live_blocks, live + 1);
  {
    const ArenaScope scope;
    const at::Tensor other = block(kMiB).fill_(9);
    EXPECT_EQ(kept.const_data_ptr<uint8_t>()[kMiB - 1], 7);
  }
  std::thread([gone = std::move(kept)]() mutable { gone.reset(); }).join();
  EXPECT_EQ(arena_use().live_blocks, live);
}

// Blocks never overlap, whatever the order of taking and giving; afterwards everything is one hole again.
TEST(Arena, BlocksKeepTheirValues) {
  const ArenaScope scope;
  const void* const lowest = block(kMiB).const_data_ptr();
  std::mt19937_64 random(7);
  struct Held {
    at::Tensor bytes;
    uint8_t value;
  };
  std::vector<Held> held;
  for (int step = 0; step < 4000; ++step) {
    if (held.empty() || (random() % 5 < 3 && held.size() < 60)) {
      const auto value = static_cast<uint8_t>(random());
      const int64_t bytes = static_cast<int64_t>(kLeastArenaBytes + random() % (step % 16 == 0 ? 8 * kMiB : 200'000));
      held.push_back({block(bytes).fill_(value), value});
    } else {
      const size_t which = random() % held.size();
      const auto* begin = held[which].bytes.const_data_ptr<uint8_t>();
      const auto* end = begin + held[which].bytes.numel();
      ASSERT_TRUE(std::all_of(begin, end, [&](uint8_t each) { return each == held[which].value; })) << "step " << step;
      std::swap(held[which], held.back());
      held.pop_back();
    }
  }
  const size_t mapped = arena_use().mapped_bytes;
  held.clear();
  const at::Tensor whole = block(200 * kMiB);
  EXPECT_EQ(whole.const_data_ptr(), lowest);
  EXPECT_EQ(arena_use().mapped_bytes, mapped);
}

TEST(Arena, MoreThanASlabIsGiven) {
  const ArenaScope scope;
  const at::Tensor large = block(600 * kMiB);
  large.const_data_ptr<uint8_t>();
  large.select(0, 600 * kMiB - 1).fill_(3);
  EXPECT_EQ(large.const_data_ptr<uint8_t>()[600 * kMiB - 1], 3);
}

int64_t faults_of_this_thread() {
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return use.ru_minflt;
}

TEST(Arena, TakesNoPagesTwice) {
  const auto grain = [](int64_t bytes) {
    const ArenaScope scope;
    std::vector<at::Tensor> activations;
    for (int layer = 0; layer < 30; ++layer) activations.push_back(block(bytes + 64 * layer).fill_(layer));
    while (!activations.empty()) activations.pop_back();
  };
  grain(kMiB);
  const int64_t before = faults_of_this_thread();
  for (int64_t i = 1; i < 50; ++i) grain(kMiB - 5000 * i);
  EXPECT_LE(faults_of_this_thread() - before, 50) << "30 blocks of 1 MiB are 7,680 small pages";
}

TEST(Arena, IdlePagesGoBack) {
  {
    const ArenaScope scope;
    block(64 * kMiB).fill_(1);
  }
  release_idle_arenas();
  const ArenaScope scope;
  const at::Tensor again = block(64 * kMiB);
  EXPECT_EQ(again.const_data_ptr<uint8_t>()[32 * kMiB], 0);
}

#endif

}  // namespace
}  // namespace lockstep::tensor
