// Bounded and repeatable: random and mutated inputs to the fuzz target, and broken streams to a real server. A driver
// that looks for new inputs can use the same target and the files that write_corpus() makes.
#include "fuzz/store_commands.h"
#include "lockstep/base/files.h"
#include "rendezvous/store_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace lockstep::rendezvous {
namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t end) { return static_cast<size_t>(random() % end); }

std::string random_bytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

/// One to four changes: a bit, a byte, a part left out, doubled or taken from another seed, the end cut off.
std::string mutated(std::string bytes, const std::vector<std::string>& seeds, Random& random) {
  for (size_t round = below(random, 4) + 1; round > 0 && !bytes.empty(); --round) {
    const size_t at = below(random, bytes.size());
    const size_t size = std::min(below(random, 40), bytes.size() - at);
    const std::string& other = seeds[below(random, seeds.size())];
    switch (below(random, 6)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8))); break;
      case 1: bytes[at] = static_cast<char>(random()); break;
      case 2: bytes.erase(at, size); break;
      case 3: bytes.insert(at, bytes.substr(at, size)); break;
      case 4: bytes.insert(at, other.substr(below(random, other.size()))); break;
      default: bytes.resize(at); break;
    }
  }
  return bytes;
}

void run(const std::string& input) {
  fuzz_store_commands(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

void write_corpus(const fs::path& folder) {
  size_t number = 0;
  for (const std::string& seed : fuzz::store_commands_seeds()) {
    write_file_atomically(folder / fmt::format("{:03}", number++), seed);
  }
}

TEST(StoreFuzz, SeedFilesHoldTheClaims) {
  const TempFolder folder("store-corpus");
  write_corpus(folder.path());
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
    EXPECT_NO_THROW(run(read_file(entry.path()))) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, fuzz::store_commands_seeds().size());
  EXPECT_GE(files, kNumStoreOps);
}

TEST(StoreFuzz, RandomInputsHoldTheClaims) {
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::string input = random_bytes(random, below(random, 80));
    ASSERT_NO_THROW(run(input)) << to_hex(input);
  }
}

TEST(StoreFuzz, MutatedInputsHoldTheClaims) {
  Random random(2);
  const std::vector<std::string> seeds = fuzz::store_commands_seeds();
  for (int i = 0; i < 40'000; ++i) {
    const std::string input = mutated(seeds[below(random, seeds.size())], seeds, random);
    ASSERT_NO_THROW(run(input)) << to_hex(input);
  }
}

TEST(StoreFuzz, AServerOutlivesBrokenStreamsAndServesTheOthers) {
  StoreRig rig({.command = {.key_bytes = 1000, .value_bytes = 10'000, .keys = 100, .command_bytes = 20'000},
                .data = {.total_bytes = 100'000},
                .reply_bytes = 100'000});
  Random random(3);
  const std::vector<std::string> seeds = fuzz::store_commands_seeds();
  RawClient good = rig.client();
  std::vector<RawClient> bad;
  for (int i = 1; i <= 500; ++i) {
    bad.emplace_back(rig.loop, net::Address::loopback_v4(rig.server.port()));
    const std::string stream = i % 5 == 0 ? random_bytes(random, below(random, 300))
                                          : mutated(seeds[below(random, seeds.size())].substr(1), seeds, random);
    bad.back().send((i % 7 == 0 ? "" : greeting(7)) + stream);
    if (bad.size() > 20) bad.erase(bad.begin() + static_cast<ptrdiff_t>(below(random, bad.size())));
    ASSERT_EQ(good.ask(bytes_of(StoreOp::Add, {"counter of the good"}, {}, 1), 8), i64(i));
    ASSERT_LE(rig.server.statistics().data_bytes, 100'000U);
  }
  const StoreServer::Statistics statistics = rig.server.statistics();
  EXPECT_EQ(statistics.accepted, 501U);
  EXPECT_GT(statistics.closed, 50U);
}

}  // namespace
}  // namespace lockstep::rendezvous
