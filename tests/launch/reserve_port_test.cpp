#include "lockstep/launch/agent.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/net/event_loop.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace lockstep::launch {
namespace {

bool can_listen(uint16_t port, bool reuses) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (reuses) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(fd.get(), 1) == 0;
}

TEST(ReservePort, KeepsItForAWorkerThatListensAsTcpStoreDoes) {
  net::EventLoop loop;
  const auto reserved = reserve_port(loop, {.host = "localhost"});
  ASSERT_GT(reserved->port(), 0);
  EXPECT_FALSE(can_listen(reserved->port(), false));
  EXPECT_TRUE(can_listen(reserved->port(), true));
  EXPECT_TRUE(can_listen(reserved->port(), true)) << "again, after a restart";
}

TEST(ReservePort, NamesATakenPort) {
  net::EventLoop loop;
  const UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(taken.get(), plain, size), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  ASSERT_EQ(getsockname(taken.get(), plain, &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  try {
    reserve_port(loop, {.host = "localhost", .port = port});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_NE(std::string(error.what()).find("port " + std::to_string(port)), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::launch
