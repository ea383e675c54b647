// Starts under limits of the shell that are too low: which one it is, and what to type.
#include "command.h"

#include <gtest/gtest.h>

#include <unistd.h>

namespace lockstep::cli {
namespace {

/// `program` with words under `ulimit LIMIT`, after `before`; with no descriptors but the three that all have.
Ended run_limited(const Scratch& scratch, const std::string& limit, const fs::path& program,
                  const std::vector<std::string>& words, const std::string& before = "") {
  std::string line = fmt::format("for fd in {{3..20}}; do eval \"exec $fd>&-\"; done; ulimit {} && exec {} {}", limit, before, program.string());
  for (const std::string& word : words) line += " " + word;
  return Command(scratch, {"-c", line}, {}, "/bin/bash").wait();
}

void expect_told(const Ended& ended, int exit_code, const std::string& text) {
  EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
  EXPECT_NE(ended.err.find(text), std::string::npos) << "'" << text << "' is not in:\n" << ended.err;
  for (const char* unhelpful : {"nternal error", "terminate called"}) {
    EXPECT_EQ(ended.err.find(unhelpful), std::string::npos) << ended.err;
  }
}

const fs::path kProgram = fs::path(LOCKSTEP_BIN_DIR) / "lockstep";

TEST(LowLimit, OfOpenFilesIsNamed) {
  for (const char* limit : {"-n 4", "-n 6", "-n 8"}) {
    const Scratch scratch;
    expect_told(run_limited(scratch, limit, kProgram, {"run", "/bin/true"}), 4, "ulimit -n");
    EXPECT_EQ(scratch.leftovers(), "");
  }
  for (const char* limit : {"-n 4", "-n 5", "-n 6", "-n 8", "-n 12", "-n 16"}) {
    const Scratch scratch;
    expect_told(run_limited(scratch, limit, kProgram, sft_args(scratch, {"--nproc_per_node", "4"})), 4, "ulimit -n");
    EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
  }
}

TEST(LowLimit, OfTheAddressSpaceIsNamed) {
  const Scratch scratch;
  // Kibibytes; the libraries of a worker do not fit.
  const Ended ended = run_limited(scratch, "-v 200000", kProgram, sft_args(scratch));
  expect_told(ended, 127, "195 MiB of address space (ulimit -v)");
  expect_told(ended, 127, "Type: ulimit -v unlimited");
  EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
}

TEST(LowLimit, OfProcessesIsNamed) {
  const Scratch scratch;
  fs::permissions(scratch.path(), fs::perms::all);
  fs::permissions(scratch / "tmp", fs::perms::all);
  fs::copy_file(kProgram, scratch / "lockstep");
  // The limit does not hold for root.
  const std::string as_somebody = geteuid() == 0 ? "setpriv --reuid 61234 --clear-groups" : "";
  expect_told(run_limited(scratch, "-u 1", scratch / "lockstep", {"run", "/bin/true"}, as_somebody), 4, "ulimit -u");
  EXPECT_EQ(scratch.leftovers(), "");
}

}  // namespace
}  // namespace lockstep::cli
