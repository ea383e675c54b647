// The kill matrix: what happens to a job on several hosts when a part of it fails, as a table of rows (*_rows.cpp). Rows
// mostly wait, so several are played at once, each on hosts of its own; one test case per row then reports.
//
// A filter chooses rows as usual: --gtest_filter=*cut_all_agent
#include "hosts/stage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <thread>

namespace lockstep::hosts {
namespace {

constexpr int kAtOnce = 8;
constexpr int kHosts = 3;
/// Below the kernel's range for outgoing connections; the hosts' ports are nobody else's.
constexpr uint16_t kFirstPort = 20'000;

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  // The longest first.
  for (const auto& part : {network_rows(), stranger_rows(), meeting_rows(), worker_and_agent_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  std::stable_partition(rows.begin(), rows.end(), [](const Row& row) { return row.name.starts_with("lose"); });
  return rows;
}

struct Played {
  std::string failures = "it was not played";
  std::string measured = {};
};

class KillMatrix : public ::testing::TestWithParam<size_t> {
 public:
  static void SetUpTestSuite() {
    HostSet::take_down_abandoned();
    const std::vector<size_t> chosen = chosen_rows();
    std::atomic<size_t> next{0};
    std::vector<std::thread> players;
    for (int i = 0; i < std::min<int>(kAtOnce, static_cast<int>(chosen.size())); ++i) {
      players.emplace_back([&] {
        try {
          HostSet hosts(kHosts);
          for (size_t at = next++; at < chosen.size(); at = next++) play(chosen[at], hosts);
        } catch (const std::exception& problem) {
          std::cerr << fmt::format("no hosts: {}\n", problem.what());
        }
      });
    }
    for (std::thread& player : players) player.join();
  }

  static const std::vector<Row>& rows() {
    static const std::vector<Row> all = all_rows();
    return all;
  }

 protected:
  static std::vector<size_t> chosen_rows() {
    std::vector<size_t> chosen;
    const ::testing::TestSuite& suite = *::testing::UnitTest::GetInstance()->current_test_suite();
    for (int i = 0; i < suite.total_test_count(); ++i) {
      if (suite.GetTestInfo(i)->should_run()) chosen.push_back(static_cast<size_t>(i));
    }
    return chosen;
  }

  static void play(size_t which, HostSet& hosts) {
    Played& result = played_[which];
    try {
      Stage stage(rows()[which], hosts, static_cast<uint16_t>(kFirstPort + 10 * which));
      stage.play();
      result = {stage.failures(), stage.measured()};
    } catch (const std::exception& problem) {
      result.failures = problem.what();
    }
  }

  static inline std::array<Played, 200> played_ = {};
};

TEST_P(KillMatrix, Row) {
  const Played& played = played_[GetParam()];
  std::cout << "  " << played.measured << "\n";
  EXPECT_TRUE(played.failures.empty()) << played.failures;
}

INSTANTIATE_TEST_SUITE_P(Rows, KillMatrix, ::testing::Range(size_t{0}, KillMatrix::rows().size()),
                         [](const auto& row) { return KillMatrix::rows()[row.param].name; });

}  // namespace
}  // namespace lockstep::hosts
