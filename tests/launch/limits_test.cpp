#include "lockstep/launch/limits.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

namespace lockstep::launch {
namespace {

const Limits kLow = {.open_files = 16, .processes = 50, .address_space_bytes = uint64_t{500} << 20};

TEST(LimitAdvice, NamesTheLimitThatWasHitWithItsValue) {
  EXPECT_EQ(limit_advice(std::string("signalfd: ") + std::strerror(EMFILE), kLow),
            " Raise the limit on open files (ulimit -n, now 16): ulimit -n 4096.");
  EXPECT_EQ(limit_advice(std::strerror(EAGAIN), {.processes = 50}),
            " Raise the limit on this user's processes and threads (ulimit -u, now 50; in a container also pids.max).");
  EXPECT_EQ(limit_advice(std::strerror(EAGAIN), kLow),
            " Raise the limit on this user's processes and threads (ulimit -u, now 50; in a container also pids.max). Or its "
            "stack has no place in 500 MiB of address space (ulimit -v); type ulimit -v unlimited.");
  EXPECT_EQ(limit_advice("out of memory: 4096 bytes", kLow),
            " The shell lets this process have 500 MiB of address space (ulimit -v); type ulimit -v unlimited.");
  EXPECT_EQ(limit_advice(std::strerror(ENFILE), {}), " Raise the limit on open files (ulimit -n): ulimit -n 4096.");
}

TEST(LimitAdvice, IsNotGivenTwiceNorWhereNoLimitIsToBlame) {
  EXPECT_EQ(limit_advice(std::string("a pipe: ") + std::strerror(EMFILE) + " (see ulimit -n)", kLow), "");
  EXPECT_EQ(limit_advice("out of memory", {}), "") << "the machine's own end";
  EXPECT_EQ(limit_advice(std::strerror(ENOENT), kLow), "");
}

TEST(AsError, SortsWhatReachesTheEdgeOfAProgram) {
  const Error data = Error::data("row 7");
  EXPECT_EQ(as_error(data, kLow).kind(), ErrorKind::Data);
  EXPECT_STREQ(as_error(data, kLow).what(), "row 7");
  const Error memory = as_error(std::bad_alloc(), kLow);
  EXPECT_EQ(memory.kind(), ErrorKind::Environment);
  EXPECT_NE(std::string(memory.what()).find("ulimit -v"), std::string::npos) << memory.what();
  EXPECT_STREQ(as_error(Error::environment("signalfd: {}", std::strerror(EMFILE)), kLow).what(),
               "signalfd: Too many open files. Raise the limit on open files (ulimit -n, now 16): ulimit -n 4096.");
  const std::system_error no_thread(EAGAIN, std::generic_category());
  EXPECT_EQ(as_error(no_thread, kLow).kind(), ErrorKind::Environment);
  EXPECT_NE(std::string(as_error(no_thread, kLow).what()).find("ulimit -u, now 50"), std::string::npos);
  const std::filesystem::filesystem_error full("open", "/x", std::error_code(EMFILE, std::generic_category()));
  EXPECT_NE(std::string(as_error(full, kLow).what()).find("/x"), std::string::npos);
  EXPECT_NE(std::string(as_error(full, kLow).what()).find("ulimit -n, now 16"), std::string::npos);
  EXPECT_STREQ(as_error(std::logic_error("x"), {}).what(), "x");
  EXPECT_EQ(as_error(std::logic_error("x"), kLow).kind(), ErrorKind::Internal);
  EXPECT_NE(std::string(as_error(std::logic_error("x"), kLow).what()).find("ulimit -v"), std::string::npos);
}

TEST(Limits, WhoServesTheMeetingNeedsADescriptorPerNode) {
  EXPECT_EQ(serving_problem({}, 50'000, 8), "");
  EXPECT_EQ(serving_problem({.open_files = 24}, 2, 1), "");
  EXPECT_EQ(serving_problem({.open_files = 23}, 2, 1),
            "23 open files are too few for the node that serves the meeting: it needs 24 for 2 nodes. Raise the limit on open files "
            "(ulimit -n, now 23): ulimit -n 4096.");
  EXPECT_NE(serving_problem({.open_files = 4096}, 5'000, 8).find("ulimit -n 5036."), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
