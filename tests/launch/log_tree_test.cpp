#include "lockstep/launch/log_tree.h"
#include "lockstep/launch/signals.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace lockstep::launch {
namespace {

TEST(LastLines, KeepsTheEnd) {
  LastLines lines;
  EXPECT_EQ(lines.text(), "");
  lines.feed("one\ntwo");
  EXPECT_EQ(lines.text(), "one\ntwo");
  for (int i = 0; i < 20'000; ++i) lines.feed("\nline " + std::to_string(i));
  EXPECT_TRUE(lines.text().starts_with("line 19990\n")) << lines.text();
  EXPECT_TRUE(lines.text().ends_with("line 19999"));
  lines.feed(std::string(100'000, 'x'));
  EXPECT_EQ(lines.text(), std::string(LastLines::kBytes, 'x'));
}

TEST(LogFile, TellsOnceThatItCannotBeWritten) {
  LogFile absent("/nowhere/x.log");
  EXPECT_EQ(absent.write("a"), "/nowhere/x.log: No such file or directory");
  EXPECT_EQ(absent.write("a"), "");
  LogFile full("/dev/full");
  EXPECT_EQ(full.write("a"), "/dev/full: No space left on device");
  EXPECT_EQ(full.write("a"), "");
}

RunSpec two_workers(const fs::path& root) {
  RunSpec spec;
  spec.num_workers = 2;
  spec.run_id = "job";
  spec.output.log_dir = root;
  spec.output.redirects = {Streams::Both, Streams::None};
  return spec;
}

Placement attempt(int number) {
  Placement placement;
  placement.restart_count = number;
  return placement;
}

TEST(LogTree, MakesAFreshFolderForEachAttempt) {
  const TempFolder root("launch-test");
  const RunSpec spec = two_workers(root.path() / "new");
  Console console({});
  LogTree tree(spec, console);
  tree.begin_attempt(attempt(0));
  tree.feed(0, Stream::Out, "first");
  const fs::path first = tree.error_file(1);
  tree.begin_attempt(attempt(1));
  tree.feed(0, Stream::Out, "second");
  ASSERT_TRUE(tree.run_folder().has_value());
  EXPECT_EQ(first, *tree.run_folder() / "attempt_0/1/error.json");
  EXPECT_EQ(tree.error_file(0), (*tree.run_folder() / "attempt_1/0/error.json").string());
  EXPECT_EQ(read_file(*tree.run_folder() / "attempt_0/0/stdout.log"), "first");
  EXPECT_EQ(read_file(*tree.run_folder() / "attempt_1/0/stdout.log"), "second");
  EXPECT_FALSE(fs::exists(*tree.run_folder() / "attempt_1/1/stdout.log"));
  // The same attempt again: what was there goes, as with torchrun.
  tree.begin_attempt(attempt(0));
  EXPECT_EQ(read_file(*tree.run_folder() / "attempt_0/0/stdout.log"), "");
  tree.close(true);
  EXPECT_TRUE(fs::exists(root.path() / "new")) << "a folder that the user named stays";
}

TEST(LogTree, RefusesARootThatIsAFile) {
  const TempFolder root("launch-test");
  write_file_atomically(root.path() / "file", "");
  const RunSpec spec = two_workers(root.path() / "file");
  Console console({});
  LogTree tree(spec, console);
  try {
    tree.begin_attempt({});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_NE(std::string(error.what()).find("--log_dir /dev/null"), std::string::npos) << error.what();
  }
}

/// TMPDIR for one test.
class TemporaryRoot {
 public:
  explicit TemporaryRoot(const std::string& value) {
    if (const char* given = std::getenv("TMPDIR")) before_ = given;
    ::setenv("TMPDIR", value.c_str(), 1);
  }
  TemporaryRoot(const TemporaryRoot&) = delete;
  TemporaryRoot& operator=(const TemporaryRoot&) = delete;
  ~TemporaryRoot() {
    if (before_) ::setenv("TMPDIR", before_->c_str(), 1);
    else ::unsetenv("TMPDIR");
  }

 private:
  std::optional<std::string> before_;
};

void make_older(const fs::path& folder) {
  fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::minutes(5));
}

RunSpec with_temporary_logs() {
  RunSpec spec = two_workers("");
  spec.output.log_dir.reset();
  return spec;
}

TEST(LogTree, SweepsOutTheEmptyTreesOfKilledLaunchers) {
  const TempFolder folder("launch-test");
  const TemporaryRoot root(folder.path());
  const fs::path empty = folder.path() / "lockstep_logs_abcdefg1", told = folder.path() / "lockstep_logs_abcdefg2",
                 young = folder.path() / "lockstep_logs_abcdefg3", other = folder.path() / "lockstep_logs_of_mine";
  for (const fs::path& tree : {empty, told, young, other}) fs::create_directories(tree / "job_1/attempt_0/0");
  write_file_atomically(told / "job_1/attempt_0/0/error.json", "{}");
  const RunSpec spec = with_temporary_logs();
  Console console({});
  LogTree in_use(spec, console);
  in_use.begin_attempt({});
  const fs::path used = in_use.run_folder()->parent_path();
  for (const fs::path& tree : {empty, told, other, used}) make_older(tree);
  LogTree next(spec, console);
  next.begin_attempt({});
  EXPECT_FALSE(fs::exists(empty));
  EXPECT_TRUE(fs::exists(told)) << "it may tell what happened";
  EXPECT_TRUE(fs::exists(young)) << "too young to be called abandoned";
  EXPECT_TRUE(fs::exists(other)) << "it only begins alike";
  EXPECT_TRUE(fs::exists(used)) << "its launcher lives";
}

TEST(LogTree, ATemporaryFolderThatCannotBeUsedIsNamed) {
  const TempFolder folder("launch-test");
  write_file_atomically(folder.path() / "file", "");
  std::string deep = folder.path().string();
  while (deep.size() < 4050) {
    deep += "/" + std::string(std::min<size_t>(150, 4049 - deep.size()), 'd');
    fs::create_directory(deep);
  }
  for (const std::string& value : {std::string("/nowhere/tmp"), (folder.path() / "file").string(), deep}) {
    const TemporaryRoot root(value);
    const RunSpec spec = with_temporary_logs();
    const fs::path err = folder.path() / "err";
    const UniqueFd fd(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    Console console({.err_fd = fd.get()});
    LogTree tree(spec, console);
    tree.begin_attempt({});
    SignalReader signals;
    console.flush(signals);
    const std::string text = read_file(err);
    EXPECT_NE(text.find("TMPDIR = '" + value.substr(0, 200)), std::string::npos) << text;
    EXPECT_NE(text.find("Set TMPDIR to"), std::string::npos) << text;
    EXPECT_NE(text.find("the run goes on"), std::string::npos) << text;
    EXPECT_EQ(tree.error_file(0), "");
  }
}

}  // namespace
}  // namespace lockstep::launch
