// Launchers of a job of several nodes, on one host.
#include "launch/run_process.h"
#include "lockstep/net/listen.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace lockstep::launch {
namespace {

/// Free a moment ago; a launcher of the test takes it.
uint16_t free_port() { return net::ListenSocket::open(net::Address::loopback_v4(0), 0).port(); }

std::vector<std::string> node_of_two(uint16_t port, bool is_host, const std::string& script) {
  return shell_run({"--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", fmt::format("127.0.0.1:{}", port), "--rdzv_conf",
                    fmt::format("is_host={},join_timeout=25", is_host ? 1 : 0)},
                   script);
}

TEST(RunNodes, AHostThatCannotTakePartTellsTheNodesThatWait) {
  const uint16_t port = free_port();
  RunProcess waits(node_of_two(port, false, "exit 0"));
  RunProcess host(node_of_two(port, true, "exit 0"), {.environment = {{"TMPDIR", "/no/such/folder"}}});
  EXPECT_EQ(waits.wait(), 4) << waits.err();
  EXPECT_TRUE(contains(waits.err(), "its launcher cannot take part: TMPDIR = '/no/such/folder'")) << waits.err();
  EXPECT_EQ(host.wait(), 4) << host.err();
  const std::string waited = fmt::format("the other nodes, which wait for it at 127.0.0.1:{}, are told so", port);
  EXPECT_TRUE(contains(host.err(), waited)) << host.err();
  EXPECT_TRUE(contains(host.err(), "lockstep: error: TMPDIR = '/no/such/folder'")) << host.err();
}

TEST(RunNodes, AHostWithTooFewDescriptorsTellsTheNodesThatWait) {
  const uint16_t port = free_port();
  RunProcess waits(node_of_two(port, false, "exit 0"));
  RunProcess host(node_of_two(port, true, "exit 0"), {.prepare = [] {
                    const rlimit limit = {12, 12};
                    setrlimit(RLIMIT_NOFILE, &limit);
                  }});
  EXPECT_EQ(waits.wait(), 4) << waits.err();
  EXPECT_TRUE(contains(waits.err(), "its launcher cannot take part: 12 open files are too few")) << waits.err();
  EXPECT_EQ(host.wait(), 4) << host.err();
}

TEST(RunNodes, OneThatIsNotTheHostOfTheEndpointEndsAtOnce) {
  RunProcess node(node_of_two(free_port(), false, "exit 0"), {.environment = {{"TMPDIR", "/no/such/folder"}}});
  EXPECT_EQ(node.wait(), 4) << node.err();
  EXPECT_FALSE(contains(node.err(), "are told so")) << node.err();
}

TEST(RunNodes, AFailureNamesTheAddressesOfHostsOfOneName) {
  const uint16_t port = free_port();
  // Only the second node has a worker that fails; both are on this host, so their names are equal.
  RunProcess host(node_of_two(port, true, "exit $((GROUP_RANK * 7))"));
  RunProcess other(node_of_two(port, false, "exit $((GROUP_RANK * 7))"));
  EXPECT_EQ(host.wait(), 7) << host.err();
  EXPECT_EQ(other.wait(), 7) << other.err();
  const std::string both = host.err() + other.err();
  EXPECT_TRUE(contains(both, "the job failed on ")) << both;
  EXPECT_TRUE(contains(both, "): rank 1 (pid ")) << both;
  EXPECT_TRUE(contains(both, "2 nodes, 2 workers: ")) << both;
}

TEST(RunNodes, AJobOfOneNodeThatMayGrowIsToldInTheSingular) {
  const std::string endpoint = fmt::format("127.0.0.1:{}", free_port());
  RunProcess node(shell_run({"--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint, "--rdzv_conf",
                             "last_call_timeout=0.1"},
                            "exit 0"));
  EXPECT_EQ(node.wait(), 0) << node.err();
  EXPECT_TRUE(contains(node.err(), "1 node, 1 worker: ")) << node.err();
}

TEST(RunNodes, ALineAboutAWaitIsOneSentence) {
  RunProcess node(shell_run({"--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "no-such-host.invalid:29500",
                             "--rdzv_conf", "join_timeout=0.3"},
                            "exit 0"));
  EXPECT_EQ(node.wait(), 6) << node.err();
  EXPECT_TRUE(contains(node.err(), "no-such-host.invalid")) << node.err();
  EXPECT_FALSE(contains(node.err(), "..") || contains(node.err(), ".;")) << node.err();
}

}  // namespace
}  // namespace lockstep::launch
