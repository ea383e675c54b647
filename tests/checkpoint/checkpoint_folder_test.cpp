// Finding, judging and removing checkpoints.
#include "checkpoint/checkpoint_rig.h"

#include <gtest/gtest.h>

#include <fstream>

namespace lockstep::checkpoint {
namespace {

std::string refusal_of(const std::function<void()>& work, ErrorKind kind) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// checkpoint-1 and checkpoint-12 by three ranks.
class CheckpointFolder : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    original_ = std::make_unique<TempFolder>("checkpoint");
    rig::save_with(3, original_->path(), 1);
    rig::save_with(3, original_->path(), 12);
  }
  static void TearDownTestSuite() { original_.reset(); }

  void SetUp() override { fs::copy(original_->path(), output_.path(), fs::copy_options::recursive); }
  const fs::path& output() const { return output_.path(); }
  fs::path newest() const { return output() / "checkpoint-12"; }

 private:
  static inline std::unique_ptr<TempFolder> original_;
  TempFolder output_{"checkpoint"};
};

TEST_F(CheckpointFolder, IsListedByNumber) {
  fs::create_directory(output() / "checkpoint-200");
  fs::create_directory(output() / "checkpoint-x");
  fs::create_directory(output() / ".checkpoint-300.partial");
  std::ofstream(output() / "checkpoint-400") << "a file";
  const std::vector<FoundCheckpoint> found = list_checkpoints(output());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].update, 1);
  EXPECT_EQ(found[1].update, 12);
  EXPECT_EQ(found[1].problem, "");
  EXPECT_EQ(found[2].update, 200);
  expect_has(found[2].problem, "checkpoint-200 has no manifest.json");
  EXPECT_TRUE(list_checkpoints(output() / "absent").empty());
}

TEST_F(CheckpointFolder, LastIsTheNewestThatIsComplete) {
  EXPECT_EQ(find_checkpoint(output(), "last"), newest());
  EXPECT_EQ(find_checkpoint(output(), "true"), newest());
  fs::create_directory(output() / "checkpoint-200");
  fs::resize_file(newest() / "model.safetensors", 100);
  std::vector<std::string> passed_over;
  EXPECT_EQ(find_checkpoint(output(), "last", &passed_over), output() / "checkpoint-1");
  ASSERT_EQ(passed_over.size(), 2u);
  expect_has(passed_over[0], "checkpoint-200 has no manifest.json");
  expect_has(passed_over[1], "model.safetensors has 100 bytes");
}

TEST_F(CheckpointFolder, SaysWhatIsThereInPlaceOfWhatWasAskedFor) {
  expect_has(refusal_of([&] { find_checkpoint(output() / "absent", "last"); }, ErrorKind::Usage), "There is none in");
  const std::string missing = refusal_of([&] { find_checkpoint(output(), (output() / "checkpoint-7").string()); },
                                      ErrorKind::Usage);
  expect_has(missing, "checkpoint-7: is no folder.");
  expect_has(missing, "checkpoint-12 (complete)");
  expect_has(refusal_of([&] { find_checkpoint("elsewhere", output().string()); }, ErrorKind::Usage),
             "is no checkpoint but a folder of them");
  EXPECT_EQ(find_checkpoint("elsewhere", (output() / "checkpoint-1" / "").string()), output() / "checkpoint-1");
}

TEST_F(CheckpointFolder, NamesATruncatedFile) {
  const auto size = static_cast<int64_t>(fs::file_size(newest() / "model.safetensors"));
  fs::resize_file(newest() / "model.safetensors", static_cast<uintmax_t>(size - 1));
  const std::string text = refusal_of([&] { find_checkpoint(output(), newest().string()); }, ErrorKind::Data);
  expect_has(text, fmt::format("model.safetensors has {} bytes, the manifest says {}: it is cut off", size - 1, size));
  expect_has(text, "checkpoint-1 (complete)");
  expect_has(refusal_of([&] { CheckpointReader reader(newest()); }, ErrorKind::Data), "is cut off. Resume from another");
}

TEST_F(CheckpointFolder, NamesAMissingPartAndItsRank) {
  fs::remove(newest() / "optimizer/part-1-of-3.safetensors");
  fs::remove(newest() / "config.json");
  const std::string text = refusal_of([&] { find_checkpoint(output(), newest().string()); }, ErrorKind::Data);
  expect_has(text, "optimizer/part-1-of-3.safetensors is missing: the share of rank 1 of the 3 that wrote");
  expect_has(text, "config.json is missing\n");
}

TEST_F(CheckpointFolder, FindsAChangedByteInEveryFile) {
  ThreadTeam team(2);
  const Manifest manifest = read_manifest(newest());
  EXPECT_EQ(manifest.files.size(), 7u);
  for (const ManifestFile& file : manifest.files) {
    const fs::path path = newest() / file.name;
    const std::string content = read_file(path);
    for (const int64_t offset : {int64_t{0}, file.bytes / 2, file.bytes - 1}) {
      const char before = content[static_cast<size_t>(offset)];
      rig::write_over(path, offset, static_cast<char>(before ^ 1));
      EXPECT_TRUE(problems_of(newest(), Verify::Sizes).empty());
      const std::vector<std::string> problems = problems_of(newest(), Verify::Content, &team);
      ASSERT_EQ(problems.size(), 1u) << file.name << " at " << offset;
      expect_has(problems[0], path.string());
      EXPECT_EQ(problems, problems_of(newest(), Verify::Content));
      std::vector<std::string> shared;
      for (int index = 0; index < 3; ++index) {
        for (std::string& one : problems_of(newest(), Verify::Content, &team, {index, 3})) shared.push_back(std::move(one));
      }
      EXPECT_EQ(problems, shared);
      rig::write_over(path, offset, before);
    }
    EXPECT_TRUE(problems_of(newest(), Verify::Content, &team).empty());
  }
  rig::write_over(newest() / "model.safetensors", manifest.find("model.safetensors")->bytes - 5, 'x');
  expect_has(problems_of(newest(), Verify::Content).front(), "the manifest says");
}

TEST_F(CheckpointFolder, NamesAManifestThatCannotBeRead) {
  fs::resize_file(newest() / "manifest.json", 50);
  expect_has(list_checkpoints(output())[1].problem, "manifest.json: is not the manifest of a checkpoint");
  EXPECT_EQ(find_checkpoint(output(), "last"), output() / "checkpoint-1");
  refusal_of([&] { CheckpointReader reader(newest()); }, ErrorKind::Data);
}

TEST_F(CheckpointFolder, VanishesAtOnceWhenItIsRemoved) {
  const fs::path aside = put_aside(real_disk(), newest());
  EXPECT_EQ(rig::entries(output()), (std::vector<std::string>{".checkpoint-12.removing", "checkpoint-1"}));
  remove_tree(real_disk(), aside);
  EXPECT_EQ(rig::entries(output()), std::vector<std::string>{"checkpoint-1"});
  remove_tree(real_disk(), aside);
}

TEST_F(CheckpointFolder, IsClearedOfWhatKilledRunsLeft) {
  put_aside(real_disk(), newest());
  fs::create_directories(output() / ".checkpoint-300.partial" / "optimizer");
  std::ofstream(output() / ".checkpoint-300.partial/optimizer/part") << "half";
  for (const char* name : {".checkpoint-x.partial", "checkpoint-5.partial", ".checkpoint-5.other"}) {
    fs::create_directory(output() / name);
  }
  const fs::path kept = output() / "kept";
  fs::create_directory(kept);
  std::ofstream(kept / "file") << "mine";
  fs::create_directory_symlink(kept, output() / ".checkpoint-4.partial");
  remove_leftovers(real_disk(), output());
  EXPECT_EQ(rig::entries(output()), (std::vector<std::string>{".checkpoint-5.other", ".checkpoint-x.partial", "checkpoint-1",
                                                              "checkpoint-5.partial", "kept"}));
  EXPECT_EQ(read_file(kept / "file"), "mine") << "links are not followed";
}

}  // namespace
}  // namespace lockstep::checkpoint
