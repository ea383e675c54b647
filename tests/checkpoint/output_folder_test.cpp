#include "lockstep/checkpoint/output_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>

#include <unistd.h>

namespace lockstep::checkpoint {
namespace {

void put(const fs::path& path, const std::string& text = "x") {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::optional<ErrorKind> refusal(const fs::path& folder, bool overwrite = false) {
  try {
    require_usable_output(folder, overwrite);
    return std::nullopt;
  } catch (const Error& error) {
    return error.kind();
  }
}

TEST(UsableOutput, TakesWhatIsAbsentEmptyOrAnEarlierResult) {
  const TempFolder scratch("output");
  const fs::path folder = scratch.path() / "out";
  EXPECT_EQ(refusal(folder), std::nullopt);
  EXPECT_FALSE(fs::exists(folder)) << "it only looks";
  fs::create_directory(folder);
  EXPECT_EQ(refusal(folder), std::nullopt);
  EXPECT_EQ(refusal(folder / ""), std::nullopt);
  put(folder / "config.json");
  EXPECT_EQ(refusal(folder), std::nullopt);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), {}), 1) << "no probe stays behind";
}

TEST(UsableOutput, RefusesForeignFilesUnlessTold) {
  const TempFolder scratch("output");
  put(scratch.path() / "thesis" / "chapter.tex");
  EXPECT_EQ(refusal(scratch.path() / "thesis"), ErrorKind::Usage);
  EXPECT_EQ(refusal(scratch.path() / "thesis", true), std::nullopt);
  EXPECT_EQ(refusal(scratch.path() / "thesis" / "chapter.tex", true), ErrorKind::Usage);
  EXPECT_EQ(refusal(scratch.path() / "thesis" / "chapter.tex" / "out"), ErrorKind::Environment);
}

TEST(UsableOutput, RefusesALinkToNothing) {
  const TempFolder scratch("output");
  fs::create_directory_symlink(scratch.path() / "gone", scratch.path() / "link");
  EXPECT_EQ(refusal(scratch.path() / "link"), ErrorKind::Usage);
  EXPECT_EQ(refusal(scratch.path() / "link" / ""), ErrorKind::Usage);
}

/// Stands in `folder` while it lives.
class StandIn {
 public:
  explicit StandIn(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~StandIn() { fs::current_path(before_); }

 private:
  fs::path before_;
};

TEST(WhyNotExchangeable, KnowsMountPointsAndWhereWeStand) {
  const TempFolder scratch("output");
  const fs::path inner = scratch.path() / "a" / "b";
  fs::create_directories(inner);
  fs::create_directory_symlink(inner, scratch.path() / "link");
  EXPECT_EQ(why_not_exchangeable(inner), "");
  EXPECT_EQ(why_not_exchangeable(scratch.path() / "absent"), "");
  EXPECT_EQ(why_not_exchangeable("/proc"), "is a mount point");
  const StandIn here(inner);
  for (const char* path : {".", "./", "..", "../b", "../../link", "../../a/"}) {
    EXPECT_EQ(why_not_exchangeable(path), "is the current folder or holds it") << path;
  }
  fs::create_directory("below");
  EXPECT_EQ(why_not_exchangeable("below"), "");
}

/// An earlier sharded model, the user's own files, and a new model of one file.
void write_earlier(const fs::path& folder) {
  put(folder / "config.json", "old");
  put(folder / "notes.txt", "mine");
  put(folder / "plots" / "loss.svg", "<svg/>");
  put(folder / "adapter.safetensors", "not ours");
  fs::create_symlink("notes.txt", folder / "link");
  for (const char* name : {"model-00001-of-00002.safetensors", "model.safetensors.index.json",
                           "optimizer_state.safetensors"}) {
    put(folder / name);
  }
}

void write_new(OutputFolder& output) {
  put(output.staging() / "config.json", "new");
  put(output.staging() / "extra" / "one.jinja", "deep");
  put(output.staging() / "model.safetensors", "weights");
}

void expect_new_beside_what_was_there(const fs::path& folder) {
  EXPECT_EQ(read_file(folder / "config.json"), "new");
  EXPECT_EQ(read_file(folder / "extra/one.jinja"), "deep");
  EXPECT_EQ(read_file(folder / "model.safetensors"), "weights");
  EXPECT_EQ(read_file(folder / "notes.txt"), "mine");
  EXPECT_EQ(read_file(folder / "plots/loss.svg"), "<svg/>");
  EXPECT_EQ(read_file(folder / "adapter.safetensors"), "not ours");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 7) << "stale weights or unfinished files";
}

TEST(OutputFolder, ExchangesTheWholeAndKeepsTheUsersFiles) {
  const TempFolder scratch("output");
  write_earlier(scratch.path() / "out");
  {
    OutputFolder output(scratch.path() / "out", false);
    write_new(output);
    EXPECT_EQ(read_file(scratch.path() / "out/config.json"), "old") << "visible before commit";
    output.commit();
  }
  expect_new_beside_what_was_there(scratch.path() / "out");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), {}), 1);
}

TEST(OutputFolder, MovesFileByFileWhereItStands) {
  const TempFolder scratch("output");
  const fs::path folder = scratch.path() / "here";
  write_earlier(folder);
  const StandIn here(folder);
  {
    OutputFolder output(".", false);
    write_new(output);
    EXPECT_EQ(read_file("config.json"), "old") << "visible before commit";
    output.commit();
  }
  expect_new_beside_what_was_there(folder);
}

TEST(OutputFolder, FinishesAMoveThatWasKilled) {
  const TempFolder folder("output");
  const fs::path out = folder.path() / "out";
  fs::create_directories(out / ".model.new");
  write_file_atomically(out / "config.json", "new, moved before the kill");
  write_file_atomically(out / "model-00001-of-00002.safetensors", "of an older model");
  write_file_atomically(out / ".model.new" / "tokenizer.json", "new");
  write_file_atomically(out / ".model.new" / "model.safetensors", "new");
  { const OutputFolder output(out, false); }
  EXPECT_FALSE(fs::exists(out / ".model.new"));
  EXPECT_FALSE(fs::exists(out / "model-00001-of-00002.safetensors"));
  EXPECT_EQ(read_file(out / "model.safetensors"), "new");
  EXPECT_EQ(read_file(out / "tokenizer.json"), "new");
  EXPECT_EQ(read_file(out / "config.json"), "new, moved before the kill");
}

TEST(OutputFolder, ANameWithoutRoomBesideItIsUsedAsItIs) {
  const TempFolder folder("output");
  const fs::path out = folder.path() / std::string(250, 'c');
  OutputFolder output(out, false);
  write_file_atomically(output.staging() / "model.safetensors", "new");
  output.commit();
  EXPECT_EQ(read_file(out / "model.safetensors"), "new");
}

TEST(OutputFolder, RecordsOfFailedRunsDoNotPushOutThoseOfTheModel) {
  const TempFolder folder("output");
  const fs::path out = folder.path() / "out";
  fs::create_directories(out);
  const auto now = fs::file_time_type::clock::now();
  const auto put = [&](const char* name, const char* text, int seconds_ago) {
    write_file_atomically(out / name, text);
    fs::last_write_time(out / name, now - std::chrono::seconds(seconds_ago));
  };
  put("run.json", "of the model", 20);
  put("config.json", "the model", 10);
  OutputFolder output(out, false);
  EXPECT_TRUE(output.keep_previous("run.json"));
  put("run.json", "of a run that failed", 5);
  EXPECT_FALSE(output.keep_previous("run.json"));
  EXPECT_EQ(read_file(out / "run.previous.json"), "of the model");
}

TEST(OutputFolder, LeavesNothingWithoutACommit) {
  const TempFolder scratch("output");
  {
    OutputFolder output(scratch.path() / "deep" / "out", false);
    EXPECT_TRUE(fs::exists(scratch.path() / "deep/out"));
    write_new(output);
  }
  EXPECT_FALSE(fs::exists(scratch.path() / "deep/out"));
  EXPECT_TRUE(fs::is_empty(scratch.path() / "deep"));
}

TEST(OutputFolder, IsHeldByOneRunAtATime) {
  const TempFolder scratch("output");
  const fs::path folder = scratch.path() / "out";
  std::optional<OutputFolder> first(std::in_place, folder, false);
  try {
    const OutputFolder second(folder, false);
    FAIL() << "two runs hold one folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_NE(std::string(error.what()).find(fmt::format("(pid {})", getpid())), std::string::npos) << error.what();
  }
  EXPECT_TRUE(fs::exists(folder)) << "the loser removed the winner's folder";
  first.reset();
  const OutputFolder third(folder, false);
}

TEST(OutputFolder, KeepsTheRecordsOfAnEarlierRun) {
  const TempFolder scratch("output");
  const fs::path folder = scratch.path() / "out";
  put(folder / "metrics.jsonl", "one");
  OutputFolder output(folder, false);
  EXPECT_TRUE(output.keep_previous("metrics.jsonl"));
  EXPECT_FALSE(output.keep_previous("metrics.jsonl"));
  EXPECT_FALSE(output.keep_previous("run.json"));
  EXPECT_EQ(read_file(folder / "metrics.previous.jsonl"), "one");
}

}  // namespace
}  // namespace lockstep::checkpoint
