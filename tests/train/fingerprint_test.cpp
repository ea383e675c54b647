#include "lockstep/train/fingerprint.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/attention.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep::train {
namespace {

TEST(Fingerprint, IsTheSameTwice) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const Fingerprint first = take_fingerprint(dtype);
    EXPECT_GE(first.kernels.size(), 8u);
    EXPECT_EQ(first.kernels, take_fingerprint(dtype).kernels);
  }
  EXPECT_NE(take_fingerprint(at::kBFloat16).kernels, take_fingerprint(at::kFloat).kernels);
}

TEST(Fingerprint, NamesThePathOfAttention) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const bool tiles = kernels::attention_path(dtype, 32) == kernels::AttentionPath::Tiles;
    size_t named = 0;
    for (const auto& [name, hash] : take_fingerprint(dtype).kernels) {
      if (name.find("attention") != std::string::npos) named += (name.rfind("AMX ", 0) == 0) == tiles ? 1 : 100;
    }
    EXPECT_EQ(named, 4u) << dtype;
  }
}

/// What each of three ranks is told when rank `other` has another hash for kernel `index`.
std::vector<std::string> told(const Fingerprint& common, size_t other, size_t index) {
  auto ranks = comm::make_threads(3, Milliseconds(20'000));
  std::vector<std::string> messages(ranks.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Fingerprint mine = common;
      if (rank == other) mine.kernels[index].second ^= 1;
      try {
        require_equal_fingerprints(mine, *ranks[rank]);
      } catch (const Error& error) {
        messages[rank] = error.what();
      }
    });
  }
  threads.clear();
  return messages;
}

TEST(Fingerprint, ADifferenceNamesRankAndKernel) {
  const Fingerprint common{{{"linear forward", 0x10}, {"attention backward", 0x2f00000000000000}, {"adamw", 3}}};
  for (size_t index = 0; index < common.kernels.size(); ++index) {
    for (const std::string& message : told(common, 2, index)) {
      EXPECT_NE(message.find("ranks 0 and 2"), std::string::npos) << message;
      EXPECT_NE(message.find("'" + common.kernels[index].first + "'"), std::string::npos) << message;
    }
  }
}

TEST(Fingerprint, EqualOnesPass) {
  const Fingerprint common{{{"linear forward", 0x10}}};
  for (const std::string& message : told(common, 99, 0)) EXPECT_EQ(message, "");
}

}  // namespace
}  // namespace lockstep::train
