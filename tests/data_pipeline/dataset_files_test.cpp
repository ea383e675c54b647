#include "lockstep/data/dataset_files.h"

#include "data_pipeline/loading.h"

namespace lockstep::data {
namespace {

using testing::expect_error;

class DatasetFiles : public ::testing::Test {
 protected:
  void put(const std::string& name) {
    fs::create_directories((folder_.path() / name).parent_path());
    write_file_atomically(folder_.path() / name, "{}\n");
  }
  /// Names relative to the folder.
  std::vector<std::string> found(const std::string& split = "train") const {
    std::vector<std::string> names;
    for (const auto& file : dataset_files(folder_.path().string(), split)) {
      names.push_back(file.lexically_relative(folder_.path()).string());
    }
    return names;
  }
  void expect_refused(const std::vector<std::string>& words, const std::string& name = "") {
    expect_error(ErrorKind::Data, words, [&] { (void)dataset_files((folder_.path() / name).string(), "train"); });
  }
  using Names = std::vector<std::string>;

  TempFolder folder_{"dataset-files"};
};

TEST_F(DatasetFiles, AFileIsItself) {
  put("chats.JSONL");
  const auto file = folder_.path() / "chats.JSONL";
  EXPECT_EQ(dataset_files(file.string(), "train"), (std::vector<fs::path>{file}));
}

TEST_F(DatasetFiles, AFolderGivesTheFilesOfTheSplitByName) {
  for (const auto* name : {"train-00001-of-00002.jsonl", "train-00000-of-00002.jsonl", "test.jsonl",
                           "trainer_state.json", "train.csv", "dataset_info.json"}) {
    put(name);
  }
  EXPECT_EQ(found(), (Names{"train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"}));
  EXPECT_EQ(found("test"), (Names{"test.jsonl"}));
}

TEST_F(DatasetFiles, TheDataFolderAndAFolderNamedAfterTheSplitCount) {
  put("data/train-0.json");
  put("validation/a.jsonl");
  put("validation/b.jsonl");
  EXPECT_EQ(found(), (Names{"data/train-0.json"}));
  EXPECT_EQ(found("validation"), (Names{"validation/a.jsonl", "validation/b.jsonl"}));
}

TEST_F(DatasetFiles, TheOnlyFileIsTakenWhateverItsName) {
  put("my_chats.jsonl");
  put("README.md");
  EXPECT_EQ(found(), (Names{"my_chats.jsonl"}));
}

TEST_F(DatasetFiles, TheOnlyFileIsNotTakenWhenItIsAnotherSplit) {
  put("test.jsonl");
  expect_refused({"split 'train'", "test.jsonl", "--dataset_train_split"});
}

TEST_F(DatasetFiles, SeveralFilesWithoutAMatchAreListed) {
  put("a.jsonl");
  put("b.jsonl");
  expect_refused({"a.jsonl, b.jsonl", "--dataset_train_split"});
}

TEST_F(DatasetFiles, AFolderWithoutRowsSaysWhatToPutThere) {
  put("config.json");
  expect_refused({"train.jsonl"});
}

TEST_F(DatasetFiles, OtherFormatsAreRefusedByName) {
  put("data/train-0.parquet");
  expect_refused({"data/train-0.parquet", "JSON lines"});
  expect_refused({".parquet", "JSON lines"}, "data/train-0.parquet");
}

TEST_F(DatasetFiles, ANameThatDoesNotExistIsToldApartFromTheHub) {
  expect_refused({"trl-lib/Capybara", "neither a file nor a folder", "Hub"}, "trl-lib/Capybara");
}

}  // namespace
}  // namespace lockstep::data
