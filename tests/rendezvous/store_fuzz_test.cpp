// Broken streams to a real server, always the same. Parser and sessions alone are a target of tests/fuzz.
#include "fuzz/mutator.h"
#include "fuzz/targets.h"
#include "rendezvous/store_client.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::rendezvous {
namespace {

TEST(StoreFuzz, AServerOutlivesBrokenStreamsAndServesTheOthers) {
  StoreRig rig({.command = {.key_bytes = 1000, .value_bytes = 10'000, .keys = 100, .command_bytes = 20'000},
                .data = {.total_bytes = 100'000},
                .reply_bytes = 100'000});
  fuzz::Mutator mutator(3, {}, 2048);
  const std::vector<std::string> seeds = fuzz::store_commands_seeds();
  RawClient good = rig.client();
  std::vector<RawClient> bad;
  for (int i = 1; i <= 500; ++i) {
    bad.emplace_back(rig.loop, net::Address::loopback_v4(rig.server.port()));
    const std::string& seed = seeds[mutator.below(seeds.size())];
    const std::string& other = seeds[mutator.below(seeds.size())];
    const std::string stream = i % 5 == 0 ? mutator.random_bytes(300) : mutator.change(seed.substr(1), other);
    bad.back().send((i % 7 == 0 ? "" : greeting(7)) + stream);
    if (bad.size() > 20) bad.erase(bad.begin() + static_cast<ptrdiff_t>(mutator.below(bad.size())));
    ASSERT_EQ(good.ask(bytes_of(StoreOp::Add, {"counter of the good"}, {}, 1), 8), i64(i));
    ASSERT_LE(rig.server.statistics().data_bytes, 100'000U);
  }
  const StoreServer::Statistics statistics = rig.server.statistics();
  EXPECT_EQ(statistics.accepted, 501U);
  EXPECT_GT(statistics.closed, 50U);
}

}  // namespace
}  // namespace lockstep::rendezvous
