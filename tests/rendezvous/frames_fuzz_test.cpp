// Bounded and repeatable: random and mutated inputs to the fuzz target.
#include "fuzz/agent_frames.h"
#include "fuzz/mutate_text.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::rendezvous {
namespace {

void run(const std::string& input) { fuzz_agent_frames(reinterpret_cast<const uint8_t*>(input.data()), input.size()); }

TEST(FramesFuzz, SeedsHoldTheClaims) {
  const std::vector<std::string> seeds = fuzz::agent_frames_seeds();
  ASSERT_GE(seeds.size(), 14U);
  for (const std::string& seed : seeds) EXPECT_NO_THROW(run(seed));
}

TEST(FramesFuzz, MutatedInputsHoldTheClaims) {
  const std::string small_numbers("\0\1\2\3\4\5\6\7\x0e\x10\xff", 11);
  int done = 0;
  EXPECT_NO_THROW(done = fuzz::mutate_text(fuzz::agent_frames_seeds(), small_numbers, fuzz_agent_frames, 50'000,
                                           Milliseconds(5'000)));
  EXPECT_GT(done, 10'000);
}

TEST(FramesFuzz, RandomPayloadsHoldTheClaims) {
  std::mt19937 random(5);
  for (int i = 0; i < 50'000; ++i) {
    const size_t size = random() % 60;
    std::string input(5 + size, '\0');
    input[0] = static_cast<char>(size);
    input[4] = static_cast<char>(random() % 16);
    for (size_t at = 5; at < input.size(); ++at) input[at] = static_cast<char>(random() % 3 == 0 ? random() % 8 : 0);
    ASSERT_NO_THROW(run(input)) << i;
  }
}

}  // namespace
}  // namespace lockstep::rendezvous
