// Process groups of libtorch that find each other through our store.
#include "store_clients/reduce.h"
#include "store_clients/server_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace lockstep::rendezvous {
namespace {

TEST(ProcessGroups, OfTwoThreadsReduceThroughTheStore) {
  ServerThread server;
  std::vector<char> right(kRanks, 0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { right[rank] = reduce_as(rank, server.port()) ? 1 : 0; });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(right, std::vector<char>(kRanks, 1));
  EXPECT_GT(server.statistics().keys, 0U);
  EXPECT_TRUE(server.log().empty());
}

TEST(ProcessGroups, OfTwoProcessesReduceThroughTheStore) {
  ServerThread server;
  const std::string port = std::to_string(server.port());
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string number = std::to_string(rank);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::execl(STORE_CLIENTS_MEMBER, "store_clients_member", number.c_str(), port.c_str(), nullptr);
      ::_exit(127);
    }
    children.push_back(pid);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  EXPECT_EQ(server.statistics().accepted, uint64_t{kRanks});
  EXPECT_TRUE(server.log().empty());
}

}  // namespace
}  // namespace lockstep::rendezvous
