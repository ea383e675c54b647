#include "lockstep/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What lies in a folder, hidden names included.
std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

void expect_error(ErrorKind kind, const ::testing::Matcher<const char*>& message, const std::function<void()>& act) {
  try {
    act();
    FAIL() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), message);
  }
}

/// Runs `fill` in a child, which then waits; kills it with SIGKILL once it has filled.
void kill_after(const std::function<void()>& fill) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    fill();
    const char byte = 1;
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1) << "the child ended before it had written";
  close(ready[0]);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(ReadFile, ReturnsAllBytes) {
  const TempFolder folder("files-test-");
  std::string content(100'000, 'x');
  content[5] = '\0';
  write_file_atomically(folder.path() / "f", content);
  EXPECT_EQ(read_file(folder.path() / "f"), content);
  write_file_atomically(folder.path() / "empty", "");
  EXPECT_EQ(read_file(folder.path() / "empty"), "");
}

TEST(ReadFile, ReadsFilesThatSayTheyHaveNoSize) {
  EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("Pid:"));
}

TEST(ReadFile, NamesPathReasonAndRemedy) {
  const TempFolder folder("files-test-");
  const fs::path missing = folder.path() / "missing.json";
  const auto message = AllOf(HasSubstr(missing.string()), HasSubstr("cannot open"),
                             HasSubstr("No such file or directory"), HasSubstr("Check the path"));
  expect_error(ErrorKind::Data, message, [&] { read_file(missing); });
  expect_error(ErrorKind::Usage, message, [&] { read_file(missing, ErrorKind::Usage); });
  expect_error(ErrorKind::Data, AllOf(HasSubstr(folder.path().string()), HasSubstr("Is a directory")),
               [&] { read_file(folder.path()); });
}

TEST(AtomicFile, NothingIsAtTheTargetBeforeCommit) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "f";
  AtomicFile file(target);
  file.write(std::string_view("one "));
  EXPECT_FALSE(fs::exists(target));
  file.write(std::string_view("two"));
  file.commit();
  EXPECT_EQ(read_file(target), "one two");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"f"});
}

TEST(AtomicFile, AbandonedLeavesTheOldContentAndNothingElse) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "f";
  write_file_atomically(target, "old");
  {
    AtomicFile file(target);
    file.write(std::string_view("new"));
  }
  EXPECT_EQ(read_file(target), "old");
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"f"});
}

TEST(AtomicFile, ReplacesWhatALinkNamesAndKeepsTheLink) {
  const TempFolder folder("files-test-");
  write_file_atomically(folder.path() / "real", "old");
  fs::create_symlink("real", folder.path() / "link");
  write_file_atomically(folder.path() / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(read_file(folder.path() / "real"), "new");
}

TEST(AtomicFile, KilledWriterLeavesNothingAtTheTarget) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "f";
  kill_after([&] {
    auto* const file = new AtomicFile(target);
    file->write(std::string(1 << 20, 'x'));
  });
  EXPECT_FALSE(fs::exists(target));
}

TEST(AtomicFile, KilledWriterLeavesTheOldContent) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "f";
  write_file_atomically(target, "old");
  kill_after([&] {
    auto* const file = new AtomicFile(target);
    file->write(std::string(1 << 20, 'x'));
  });
  EXPECT_EQ(read_file(target), "old");
}

TEST(AtomicFile, MissingFolderIsAnEnvironmentError) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "no" / "f";
  expect_error(ErrorKind::Environment, AllOf(HasSubstr(target.string()), HasSubstr("No such file or directory")),
               [&] { AtomicFile file(target); });
}

TEST(AtomicFile, AFailingWriteIsReportedAndLeavesNothing) {
  const TempFolder folder("files-test-");
  // A limit on file sizes makes write() fail part of the way, as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{10'000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ErrorKind::Environment,
               AllOf(HasSubstr((folder.path() / "f").string()), HasSubstr("cannot write"), HasSubstr("File too large"),
                     HasSubstr("ulimit -f")),
               [&] { write_file_atomically(folder.path() / "f", std::string(20'000, 'x')); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFolder, AppearsWholeOnCommit) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "parent" / "out";
  AtomicFolder out(target);
  fs::create_directory(out.path() / "sub");
  std::ofstream(out.path() / "sub" / "f") << "content";
  EXPECT_FALSE(fs::exists(target));
  out.commit();
  EXPECT_EQ(read_file(target / "sub" / "f"), "content");
  EXPECT_EQ(names_in(target.parent_path()), std::set<std::string>{"out"});
}

TEST(AtomicFolder, TrailingSlashNamesTheSameFolder) {
  const TempFolder folder("files-test-");
  AtomicFolder out(folder.path().string() + "/out/");
  std::ofstream(out.path() / "f") << "content";
  out.commit();
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"out"});
  EXPECT_EQ(read_file(folder.path() / "out" / "f"), "content");
}

TEST(AtomicFolder, ReplacesAnEmptyFolder) {
  const TempFolder folder("files-test-");
  fs::create_directory(folder.path() / "out");
  AtomicFolder out(folder.path() / "out");
  std::ofstream(out.path() / "f") << "content";
  out.commit();
  EXPECT_EQ(read_file(folder.path() / "out" / "f"), "content");
}

TEST(AtomicFolder, ReplacesAFullFolderWithAllItsContent) {
  const TempFolder folder("files-test-");
  fs::create_directory(folder.path() / "out");
  write_file_atomically(folder.path() / "out" / "old", "old");
  AtomicFolder out(folder.path() / "out");
  std::ofstream(out.path() / "f") << "content";
  EXPECT_EQ(names_in(folder.path() / "out"), std::set<std::string>{"old"});
  out.commit();
  EXPECT_EQ(names_in(folder.path() / "out"), std::set<std::string>{"f"});
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"out"});
}

TEST(AtomicFolder, AbandonedLeavesNothing) {
  const TempFolder folder("files-test-");
  {
    AtomicFolder out(folder.path() / "out");
    std::ofstream(out.path() / "f") << "content";
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFolder, KilledWriterLeavesNothingAtTheTarget) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "out";
  kill_after([&] {
    auto* const out = new AtomicFolder(target);
    write_file_atomically(out->path() / "f", "content");
  });
  EXPECT_FALSE(fs::exists(target));
}

TEST(AtomicFolder, TakesOverTheModeOfTheFolderItReplaces) {
  const TempFolder folder("files-test-");
  const fs::path target = folder.path() / "private";
  fs::create_directory(target);
  fs::permissions(target, fs::perms::owner_all);
  write_file_atomically(target / "old", "old");
  AtomicFolder fresh(target);
  write_file_atomically(fresh.path() / "new", "new");
  fresh.commit();
  EXPECT_EQ(fs::status(target).permissions(), fs::perms::owner_all);
  EXPECT_EQ(names_in(target).size(), 1U);
}

TEST(AtomicFolder, AFileAtTheTargetIsNotReplaced) {
  const TempFolder folder("files-test-");
  write_file_atomically(folder.path() / "out", "a file");
  expect_error(ErrorKind::Environment, AllOf(HasSubstr("is not a folder"), HasSubstr("Remove it")),
               [&] { AtomicFolder out(folder.path() / "out"); });
  EXPECT_EQ(read_file(folder.path() / "out"), "a file");
}

TEST(RequireWritableFolder, CreatesItAndLeavesItEmpty) {
  const TempFolder folder("files-test-");
  require_writable_folder(folder.path() / "a" / "b");
  EXPECT_TRUE(names_in(folder.path() / "a" / "b").empty());
}

TEST(RequireWritableFolder, APathThroughAFileIsAnError) {
  const TempFolder folder("files-test-");
  write_file_atomically(folder.path() / "f", "");
  expect_error(ErrorKind::Environment,
               AllOf(HasSubstr((folder.path() / "f" / "out").string()), HasSubstr("a file, not a folder")),
               [&] { require_writable_folder(folder.path() / "f" / "out"); });
  // /proc takes no new files from anyone, root included.
  expect_error(ErrorKind::Environment, HasSubstr("/proc/self"), [] { require_writable_folder("/proc/self"); });
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  const TempFolder folder("files-test-");
  write_file_atomically(folder.path() / "f", "mapped");
  MappedFile first(folder.path() / "f");
  MappedFile second(std::move(first));
  ASSERT_EQ(second.bytes().size(), 6U);
  EXPECT_EQ(static_cast<char>(second.bytes()[5]), 'd');
  EXPECT_EQ(second.path(), folder.path() / "f");
  write_file_atomically(folder.path() / "g", "other");
  second = MappedFile(folder.path() / "g");
  EXPECT_EQ(second.bytes().size(), 5U);
}

TEST(MappedFile, AnEmptyFileHasNoBytes) {
  const TempFolder folder("files-test-");
  write_file_atomically(folder.path() / "f", "");
  EXPECT_TRUE(MappedFile(folder.path() / "f").bytes().empty());
}

TEST(MappedFile, MissingFilesAndFoldersAreDataErrors) {
  const TempFolder folder("files-test-");
  expect_error(ErrorKind::Data, HasSubstr("No such file"), [&] { MappedFile file(folder.path() / "f"); });
  expect_error(ErrorKind::Data, HasSubstr("Is a directory"), [&] { MappedFile file(folder.path()); });
}

TEST(TempFolder, IsRemovedWithItsContent) {
  fs::path path;
  {
    const TempFolder folder("files-test-");
    path = folder.path();
    write_file_atomically(path / "f", "content");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TempFolder, AnAbandonedOneIsRemovedAndOneInUseIsNot) {
  const TempFolder parent("files-test-");
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", parent.path().c_str(), 1);
  const TempFolder in_use("run-");
  fs::create_directories(parent.path() / "run-gone12" / "deep");
  fs::create_directory(parent.path() / "run-1");  // a user's own
  fs::create_directory(parent.path() / "other-gone");
  TempFolder::remove_abandoned("run-", 3600);
  EXPECT_TRUE(fs::exists(parent.path() / "run-gone12")) << "too young to be called abandoned";
  TempFolder::remove_abandoned("run-", -1);
  if (before == nullptr) ::unsetenv("TMPDIR"); else ::setenv("TMPDIR", kept.c_str(), 1);
  EXPECT_FALSE(fs::exists(parent.path() / "run-gone12"));
  EXPECT_TRUE(fs::exists(in_use.path()));
  EXPECT_TRUE(fs::exists(parent.path() / "run-1")) << "it only begins alike";
  EXPECT_TRUE(fs::exists(parent.path() / "other-gone"));
}

TEST(TempFolder, ATmpdirThatCannotBeUsedIsNamedWithItsValueAndTheRemedy) {
  const TempFolder parent("files-test-");
  write_file_atomically(parent.path() / "file", "");
  std::string deep = parent.path().string();
  while (deep.size() < 4050) {
    deep += "/" + std::string(std::min<size_t>(150, 4049 - deep.size()), 'd');
    fs::create_directory(deep);
  }
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  for (const std::string& value : {std::string("/nowhere/tmp"), (parent.path() / "file").string(), std::string("/proc"), deep}) {
    ::setenv("TMPDIR", value.c_str(), 1);
    std::string message;
    try {
      const TempFolder folder("files-test-");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Environment);
      message = error.what();
    }
    EXPECT_NE(message.find("TMPDIR = '" + value.substr(0, 200)), std::string::npos) << message;
    EXPECT_NE(message.find("Set TMPDIR to a "), std::string::npos) << message;
  }
  if (before == nullptr) ::unsetenv("TMPDIR"); else ::setenv("TMPDIR", kept.c_str(), 1);
}

TEST(RemoveUnfinished, TakesTheNamedProcessesWorkAlone) {
  const TempFolder folder("files-test-");
  for (const char* name : {".out.tmp-12-ab", ".run.json.tmp-12-cd", ".out.tmp-123-ab", "out.tmp-12-ab", "out"}) {
    fs::create_directory(folder.path() / name);
  }
  const pid_t pids[] = {12};
  remove_unfinished(folder.path(), pids);
  EXPECT_EQ(names_in(folder.path()).size(), 3U);
  EXPECT_TRUE(fs::exists(folder.path() / ".out.tmp-123-ab"));
  remove_unfinished(folder.path() / "absent", pids);
  fs::create_directory(folder.path() / ".mine.tmp-12-ab");
  fs::create_directory(folder.path() / ".other.tmp-12-ab");
  remove_unfinished(folder.path(), pids, "mine.tmp-");
  EXPECT_FALSE(fs::exists(folder.path() / ".mine.tmp-12-ab"));
  EXPECT_TRUE(fs::exists(folder.path() / ".other.tmp-12-ab")) << "another container's process may have the same number";
}

TEST(FolderLock, NamesTheHolderAndEndsWithIt) {
  const TempFolder folder("files-test-");
  const fs::path place = folder.path() / "held";
  fs::create_directory(place);
  {
    const FolderLock first(place);
    EXPECT_EQ(first.outcome(), FolderLock::Outcome::Locked);
    const FolderLock second(place);
    EXPECT_EQ(second.outcome(), FolderLock::Outcome::HeldByOther);
    EXPECT_EQ(second.holder(), ::getpid());
  }
  EXPECT_EQ(FolderLock(place).outcome(), FolderLock::Outcome::Locked);
}

TEST(ExpandUser, PutsTheHomeFolderInPlaceOfATilde) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ::setenv("HOME", "/home/ada", 1);
  EXPECT_EQ(expand_user("~"), "/home/ada");
  EXPECT_EQ(expand_user("~/out"), "/home/ada/out");
  EXPECT_EQ(expand_user("~bob/out"), "~bob/out");
  EXPECT_EQ(expand_user("a/~/out"), "a/~/out");
  ::unsetenv("HOME");
  EXPECT_EQ(expand_user("~/out"), "~/out");
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
}

TEST(UniqueFd, ClosesOnceAndMoves) {
  UniqueFd first(::open("/dev/null", O_RDONLY));
  const int number = first.get();
  {
    UniqueFd second(std::move(first));
    EXPECT_EQ(second.get(), number);
    EXPECT_EQ(::fcntl(number, F_GETFD), 0);
  }
  EXPECT_EQ(::fcntl(number, F_GETFD), -1) << "the descriptor is still open";
}

}  // namespace
}  // namespace lockstep
