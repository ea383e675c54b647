#include "lockstep/launch/output_queue.h"

#include "lockstep/base/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

namespace lockstep::launch {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    reading = UniqueFd(ends[0]);
    writing = UniqueFd(ends[1]);
  }
  UniqueFd reading;
  UniqueFd writing;
};

TEST(OutputQueue, AReaderThatPausesDoesNotBlockAndLosesNothing) {
  const Pipe pipe;
  OutputQueue queue(pipe.writing.get());
  std::string sent;
  for (int i = 0; i < 100'000; ++i) sent += std::to_string(i) + "\n";
  queue.push(sent);
  queue.write_some();
  EXPECT_FALSE(queue.empty()) << "more was sent than the pipe holds";

  std::string received;
  std::array<char, 10'000> buffer;
  while (received.size() < sent.size()) {
    const ssize_t got = read(pipe.reading.get(), buffer.data(), buffer.size());
    ASSERT_GT(got, 0);
    received.append(buffer.data(), static_cast<size_t>(got));
    queue.write_some();
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(received, sent);
}

TEST(OutputQueue, AReaderThatIsGoneIsAProblemAndNotADeath) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  OutputQueue queue(pipe.writing.get());
  pipe.reading.reset();
  queue.push("text");
  queue.write_some();
  EXPECT_EQ(queue.problem(), "Broken pipe");
  queue.push("more");
  EXPECT_TRUE(queue.empty());
  std::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace lockstep::launch
