#include "lockstep/launch/slurm_token.h"

#include "launch/slurm_variables.h"
#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <latch>
#include <thread>

namespace lockstep::launch {
namespace {

std::string failure(ErrorKind kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

bool sleep_and_go_on(Milliseconds span) {
  std::this_thread::sleep_for(span);
  return true;
}

/// A step submitted from a folder of the test's own. Without munge: its tests are among the cluster's.
class SlurmToken : public testing::Test {
 protected:
  StepSecretPlace place(const Environment& changes = {}) const {
    Environment variables = step_variables(changes);
    variables["SLURM_SUBMIT_DIR"] = folder_.path().string();
    return step_secret_place(*read_slurm(variables).step);
  }
  fs::path file() const { return folder_.path() / ".lockstep-token-test-7.0"; }
  static std::optional<StepSecret> look(const StepSecretPlace& where) {
    std::string why;
    return read_step_secret(where, nullptr, why);
  }

  TempFolder folder_{"slurm-token-test"};
};

TEST_F(SlurmToken, AllNodesReadWhatTheFirstWrote) {
  const StepSecret written = publish_step_secret(place(), nullptr);
  EXPECT_EQ(written.secret.size(), 32U);
  EXPECT_EQ(written.how, "file " + file().string());
  const auto read = look(place());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->secret, written.secret);
  struct stat status {};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "nothing is left beside it";
}

TEST_F(SlurmToken, EveryStartHasItsOwn) {
  const StepSecret first = publish_step_secret(place(), nullptr);
  const StepSecret second = publish_step_secret(place(), nullptr);
  EXPECT_NE(first.secret, second.secret);
  EXPECT_EQ(look(place())->secret, second.secret);
  EXPECT_NE(place({{"SLURM_STEP_ID", "1"}}).name, place().name);
  EXPECT_NE(place({{"SLURM_RESTART_COUNT", "1"}}).name, place().name);
  EXPECT_NE(place({{"SLURM_CLUSTER_NAME", "other"}}).name, place().name);
}

TEST_F(SlurmToken, AFileOfAnEarlierStartOfTheSameNameIsNotTaken) {
  publish_step_secret(place({{"SLURM_STEP_LAUNCHER_PORT", "40000"}}), nullptr);
  std::string why;
  EXPECT_FALSE(read_step_secret(place(), nullptr, why));
  EXPECT_NE(why.find("of an earlier start"), std::string::npos);
}

TEST_F(SlurmToken, TheFirstNodeRemovesIt) {
  publish_step_secret(place(), nullptr);
  remove_step_secret(place());
  EXPECT_FALSE(fs::exists(file()));
  std::string why;
  EXPECT_FALSE(read_step_secret(place(), nullptr, why));
  EXPECT_NE(why.find("No such file"), std::string::npos);
  remove_step_secret(place());
}

TEST_F(SlurmToken, FilesNotToBeTrustedAreRefused) {
  publish_step_secret(place(), nullptr);
  const std::string content = read_file(file());
  fs::permissions(file(), fs::perms::group_read, fs::perm_options::add);
  EXPECT_NE(failure(ErrorKind::Environment, [&] { look(place()); }).find("not readable by this user alone"),
            std::string::npos);

  fs::remove(file());
  fs::create_symlink("/etc/hostname", file());
  EXPECT_NE(failure(ErrorKind::Environment, [&] { look(place()); }).find("cannot be read"), std::string::npos);

  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_NE(failure(ErrorKind::Environment, [&] { look(place()); }).find("no plain file"), std::string::npos);

  const auto with = [&](const std::string& text) {
    fs::remove(file());
    write_file_atomically(file(), text);
    fs::permissions(file(), fs::perms::owner_read | fs::perms::owner_write);
    return failure(ErrorKind::Environment, [&] { look(place()); });
  };
  EXPECT_NE(with("").find("damaged"), std::string::npos);
  EXPECT_NE(with(content.substr(0, content.size() - 1)).find("damaged"), std::string::npos);
  EXPECT_NE(with("x" + content).find("damaged"), std::string::npos);
  EXPECT_NE(with("MUNGE:abc:").find("munge, which does not work on this node"), std::string::npos);
  EXPECT_EQ(with(content), "no error");
}

TEST_F(SlurmToken, AnotherUsersFileIsRefused) {
  publish_step_secret(place(), nullptr);
  const int result = ::chown(file().c_str(), 12345, 12345);
  if (::geteuid() != 0) {
    EXPECT_NE(result, 0) << "only root can give files away";
    return;
  }
  ASSERT_EQ(result, 0);
  EXPECT_NE(failure(ErrorKind::Environment, [&] { look(place()); }).find("not this user's"), std::string::npos);
}

TEST_F(SlurmToken, TheOthersWaitForTheFirst) {
  std::latch looked(1);
  std::optional<StepSecret> read;
  std::thread other([&] {
    std::string why;
    EXPECT_FALSE(read_step_secret(place(), nullptr, why));
    looked.count_down();
    read = await_step_secret(place(), nullptr, Deadline::in(Milliseconds(20'000)), [](const std::string&) {},
                             sleep_and_go_on);
  });
  looked.wait();
  const StepSecret written = publish_step_secret(place(), nullptr);
  other.join();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->secret, written.secret);
}

TEST_F(SlurmToken, AWaitEndsWhenItsPauseIsInterrupted) {
  int pauses = 0;
  const auto read = await_step_secret(place(), nullptr, Deadline::in(Milliseconds(20'000)), [](const std::string&) {},
                                      [&](Milliseconds) { return ++pauses < 3; });
  EXPECT_FALSE(read);
  EXPECT_EQ(pauses, 3);
}

TEST_F(SlurmToken, AWaitInVainNamesTheRemedy) {
  const std::string message = failure(ErrorKind::Timeout, [&] {
    (void)await_step_secret(place(), nullptr, Deadline::in(Milliseconds(20)), [](const std::string&) {},
                             sleep_and_go_on);
  });
  EXPECT_NE(message.find("did not come within"), std::string::npos) << message;
  EXPECT_NE(message.find(".lockstep-token-test-7.0: No such file"), std::string::npos) << message;
  EXPECT_NE(message.find("token_file=FILE"), std::string::npos) << message;
}

TEST_F(SlurmToken, AFolderThatCannotBeWrittenNamesTheRemedy) {
  Environment variables = step_variables();
  variables["SLURM_SUBMIT_DIR"] = "/proc";
  const auto nowhere = step_secret_place(*read_slurm(variables).step);
  EXPECT_NE(failure(ErrorKind::Environment, [&] { publish_step_secret(nowhere, nullptr); }).find("token cannot be "
                                                                                                 "written"),
            std::string::npos);
  variables.erase("SLURM_SUBMIT_DIR");
  EXPECT_NE(failure(ErrorKind::Environment, [&] { step_secret_place(*read_slurm(variables).step); })
                .find("SLURM_SUBMIT_DIR is not set"),
            std::string::npos);
}

TEST(Munge, SaysWhyItDoesNotWork) {
  std::string why;
  EXPECT_EQ(Munge::open("/nonexistent/munge.socket", why), nullptr);
  EXPECT_FALSE(why.empty());
}

}  // namespace
}  // namespace lockstep::launch
