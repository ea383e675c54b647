// The console: a bar on a terminal, plain lines in a file.
#include "command.h"

#include <gtest/gtest.h>

#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::cli {
namespace {

/// Everything that the command writes on a terminal of `columns`.
std::string on_terminal(const Scratch& scratch, std::vector<std::string> args, unsigned short columns) {
  std::string program = (fs::path(LOCKSTEP_BIN_DIR) / "lockstep").string();
  std::vector<char*> argv = {program.data()};
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const std::string tmp = (scratch / "tmp").string();
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    setenv("TMPDIR", tmp.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const UniqueFd fd(terminal);
  std::string seen;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
  while (Clock::now() < end) {
    pollfd ready{fd.get(), POLLIN, 0};
    if (poll(&ready, 1, 1000) <= 0) continue;
    char buffer[4096];
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got > 0) seen.append(buffer, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) break;  // EIO: the last writer has gone
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return seen;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Console, DrawsABarOnATerminalAndClearsIt) {
  const Scratch scratch;
  const std::string seen = on_terminal(scratch, sft_args(scratch, {"--max_steps", "4", "--logging_steps", "2"}), 80);
  EXPECT_NE(seen.find("100% |"), std::string::npos) << seen;
  EXPECT_NE(seen.find("| 4/4 ["), std::string::npos) << seen;
  EXPECT_EQ(count(seen, "step 2/4"), 1u) << seen;
  const size_t last = seen.rfind("\r\033[K");
  ASSERT_NE(last, std::string::npos);
  EXPECT_EQ(seen.substr(last + 4, 17), "Trained 4 updates") << "the bar is gone before the last line: " << seen;
}

TEST(Console, WritesPlainLinesToAFile) {
  const Scratch scratch;
  const Ended ended = run(scratch, sft_args(scratch, {"--max_steps", "4", "--logging_steps", "2"}));
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.err.find_first_of("\r\033"), std::string::npos) << ended.err;
  EXPECT_EQ(count(ended.err, "step 2/4") + count(ended.err, "step 4/4"), 2u) << ended.err;
  EXPECT_EQ(count(ended.out, "\n"), 1u) << "one line on stdout: " << ended.out;
}

TEST(Console, TheBarCanBeSwitchedOff) {
  const Scratch scratch;
  const std::string seen = on_terminal(scratch, sft_args(scratch, {"--disable_tqdm", "true"}), 80);
  EXPECT_EQ(seen.find("% |"), std::string::npos) << seen;
  EXPECT_NE(seen.find("Trained 2 updates"), std::string::npos) << seen;
}

}  // namespace
}  // namespace lockstep::cli
