#include "lockstep/launch/log_tree.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::launch
