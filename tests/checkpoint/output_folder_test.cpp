#include "lockstep/checkpoint/output_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>

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

TEST(CarryOver, TakesWhatIsTheUsersAndLeavesStaleWeights) {
  const TempFolder scratch("output");
  const fs::path old = scratch.path() / "old", fresh = scratch.path() / "fresh";
  fs::create_directory(fresh);
  put(fresh / "config.json", "new");
  put(old / "config.json", "old");
  put(old / "notes.txt", "mine");
  put(old / "plots" / "loss.svg", "<svg/>");
  put(old / "adapter.safetensors", "not ours");
  fs::create_symlink("notes.txt", old / "link");
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                           "optimizer_state.safetensors"}) {
    put(old / name);
  }
  carry_over(old, fresh);
  EXPECT_EQ(read_file(fresh / "config.json"), "new");
  EXPECT_EQ(read_file(fresh / "notes.txt"), "mine");
  EXPECT_EQ(read_file(fresh / "plots/loss.svg"), "<svg/>");
  EXPECT_EQ(read_file(fresh / "adapter.safetensors"), "not ours");
  EXPECT_TRUE(fs::is_symlink(fresh / "link"));
  EXPECT_EQ(std::distance(fs::directory_iterator(fresh), {}), 5);
  carry_over(scratch.path() / "absent", fresh);
}

}  // namespace
}  // namespace lockstep::checkpoint
