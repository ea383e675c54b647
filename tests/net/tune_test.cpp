#include "lockstep/net/connect.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

namespace lockstep::net {
namespace {

TEST(TuneForControl, MakesLinearTimeoutsHoldWhateverTheMachinesCongestionControlIs) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  tune_for_control(fd.get());
  const auto number = [&](int option) {
    int value = -1;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, option, &value, &size), 0);
    return value;
  };
  EXPECT_EQ(number(TCP_NODELAY), 1);
  EXPECT_EQ(number(TCP_THIN_LINEAR_TIMEOUTS), 1);
  EXPECT_EQ(number(TCP_USER_TIMEOUT), 900'000) << "a cut is judged by silence, not by the kernel";
  std::array<char, 16> name{};
  socklen_t size = name.size();
  ASSERT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  EXPECT_STREQ(name.data(), "reno");
}

}  // namespace
}  // namespace lockstep::net
