#include "lockstep/data/cut.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace lockstep::data {
namespace {

using Lengths = std::vector<int64_t>;

std::vector<int64_t> token_counts(const std::vector<Grain>& grains) {
  std::vector<int64_t> counts;
  for (const Grain& grain : grains) counts.push_back(grain.num_tokens);
  return counts;
}

/// Lengths as those of GSM8K chats under SmolLM2: 90 to 500 tokens, most near 200.
Lengths chat_lengths(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> length(5.3, 0.3);
  Lengths lengths;
  for (int64_t i = 0; i < n; ++i) lengths.push_back(std::clamp<int64_t>(static_cast<int64_t>(length(random)), 2, 1024));
  return lengths;
}

/// Balance of the default cut for SmolLM2-135M: 134.5 million weights, two operations each; 30 layers, 576 wide.
double balance_of_cut(const Lengths& lengths, int64_t num_workers) {
  std::vector<double> costs;
  for (const Grain& grain : cut_into_grains(lengths, {})) {
    Lengths docs;
    for (const int64_t member : grain.members) docs.push_back(lengths[static_cast<size_t>(member)]);
    costs.push_back(grain_cost(docs, 269'000'000, 30 * 576));
  }
  return balance(costs, num_workers);
}

TEST(Cut, FollowsTheDocumentedRuleByHand) {
  // S = 27, ceil(27 / 10) = 3 grains. 9 -> #0, 7 -> #1, 5 -> #2, 4 -> #2 (5 is the emptiest), 2 -> #1 (7).
  const auto grains = cut_into_grains(Lengths{4, 9, 2, 7, 5}, {.grain_tokens = 10, .min_grains = 1});
  ASSERT_EQ(grains.size(), 3u);
  EXPECT_EQ(grains[0].members, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(grains[1].members, (std::vector<int64_t>{1}));
  EXPECT_EQ(grains[2].members, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(token_counts(grains), (std::vector<int64_t>{9, 9, 9}));
}

TEST(Cut, OpensAnotherGrainWhenNothingFits) {
  // ceil(18 / 10) = 2, but three times six needs three.
  const auto grains = cut_into_grains(Lengths{6, 6, 6}, {.grain_tokens = 10, .min_grains = 1});
  EXPECT_EQ(token_counts(grains), (std::vector<int64_t>{6, 6, 6}));
  EXPECT_EQ(grains[0].members, (std::vector<int64_t>{0}));
  EXPECT_EQ(grains[2].members, (std::vector<int64_t>{2}));
}

TEST(Cut, ASampleLongerThanAGrainIsAGrainAlone) {
  const auto grains = cut_into_grains(Lengths{3, 50, 10, 4}, {.grain_tokens = 10, .min_grains = 1});
  EXPECT_EQ(token_counts(grains), (std::vector<int64_t>{50, 10, 7}));
  EXPECT_EQ(grains[0].members, (std::vector<int64_t>{1}));
}

TEST(Cut, NoSamplesMakeNoGrains) { EXPECT_TRUE(cut_into_grains(Lengths{}, {}).empty()); }

TEST(Cut, HoldsItsPropertiesOnRandomLengths) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 400; ++trial) {
    const CutOptions options{.grain_tokens = 1 + static_cast<int64_t>(random() % 2000),
                             .min_grains = 1 + static_cast<int64_t>(random() % 20)};
    Lengths lengths(1 + random() % 80);
    const auto most = 2 + random() % 2500;
    for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % most);
    SCOPED_TRACE(fmt::format("trial {}: {} samples, grain_tokens {}, min_grains {}", trial, lengths.size(),
                             options.grain_tokens, options.min_grains));

    const auto grains = cut_into_grains(lengths, options);
    std::vector<int> seen(lengths.size(), 0);
    for (const Grain& grain : grains) {
      ASSERT_FALSE(grain.members.empty());
      EXPECT_TRUE(std::is_sorted(grain.members.begin(), grain.members.end()));
      int64_t tokens = 0;
      for (const int64_t member : grain.members) {
        ++seen[static_cast<size_t>(member)];
        tokens += lengths[static_cast<size_t>(member)];
      }
      EXPECT_EQ(tokens, grain.num_tokens);
      EXPECT_TRUE(tokens <= options.grain_tokens || grain.members.size() == 1) << tokens;
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(lengths.size()));
    EXPECT_GE(grains.size(), std::min(static_cast<size_t>(options.min_grains), lengths.size()));

    auto shuffled = lengths;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    EXPECT_EQ(token_counts(cut_into_grains(shuffled, options)), token_counts(grains));
  }
}

TEST(Deal, EveryGrainOnceAndEveryWorkerOneWhileThereAreEnough) {
  std::mt19937 random(6);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> costs(1 + random() % 30);
    for (double& cost : costs) cost = static_cast<double>(random() % 100);  // some cost nothing
    const auto workers = static_cast<int64_t>(1 + random() % 10);
    const auto hands = deal_grains(costs, workers);
    ASSERT_EQ(hands.size(), static_cast<size_t>(workers));
    std::vector<int> seen(costs.size(), 0);
    size_t idle = 0;
    for (const auto& hand : hands) {
      idle += hand.empty();
      for (const int64_t grain : hand) ++seen[static_cast<size_t>(grain)];
      EXPECT_TRUE(std::is_sorted(hand.begin(), hand.end(), [&](int64_t a, int64_t b) {
        return costs[static_cast<size_t>(a)] > costs[static_cast<size_t>(b)];
      }));
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(costs.size()));
    EXPECT_EQ(idle, hands.size() - std::min(hands.size(), costs.size()));
  }
}

TEST(Deal, BalanceIsSumOverWorkersTimesLargestLoad) {
  const std::vector<double> costs{3, 3, 2, 2, 2};  // LPT: {3, 2, 2}, {3, 2}
  EXPECT_DOUBLE_EQ(balance(costs, 2), 12.0 / (2 * 7));
  EXPECT_DOUBLE_EQ(balance(costs, 1), 1.0);
  EXPECT_DOUBLE_EQ(balance(std::vector<double>{}, 4), 1.0);
}

TEST(Deal, CostIsLinearInTokensPlusSquaredDocuments) {
  EXPECT_DOUBLE_EQ(grain_cost(Lengths{3, 4}, 10, 5), 7 * 10 + 2 * 5 * (9 + 16));
}

/// GSM8K-like chats: the balance of the default cut, printed for the record.
TEST(Deal, ChatsOnAFewWorkersAreBalancedByTheDefaultCut) {
  constexpr int kUpdates = 50;
  for (const int64_t batch : {8, 32, 128}) {
    double lowest_at_two = 1;
    for (const int64_t workers : {2, 4, 8}) {
      double sum = 0;
      size_t num_grains = 0;
      for (uint32_t update = 0; update < kUpdates; ++update) {
        const Lengths lengths = chat_lengths(batch, update);
        const double value = balance_of_cut(lengths, workers);
        sum += value;
        num_grains += cut_into_grains(lengths, {}).size();
        if (workers == 2) lowest_at_two = std::min(lowest_at_two, value);
      }
      fmt::print("B = {:3}, {} workers: {:4.1f} grains, balance {:.1f} %\n", batch, workers,
                 static_cast<double>(num_grains) / kUpdates, 100 * sum / kUpdates);
    }
    if (batch >= 32) {
      EXPECT_GT(lowest_at_two, 0.85) << "B = " << batch;
    }
  }
}

}  // namespace
}  // namespace lockstep::data
