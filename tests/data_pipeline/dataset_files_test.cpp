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
                           "trainer_state.json", "README.txt", "dataset_info.json"}) {
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
  put("data/train-0.pkl");
  expect_refused({"data/train-0.pkl", "JSON lines"});
  expect_refused({".pkl files are not read", ".parquet", "JSON lines"}, "data/train-0.pkl");
  put("rows.jsonl.xz");
  expect_refused({".xz files are not read"}, "rows.jsonl.xz");
  put("rows.parquet.gz");
  expect_refused({".gz files are not read"}, "rows.parquet.gz");
}

TEST_F(DatasetFiles, ANameThatDoesNotExistIsToldApartFromTheHub) {
  expect_refused({"trl-lib/Capybara", "neither a file nor a folder", "Hub"}, "trl-lib/Capybara");
}

/// The output folder may be the data's own, and an earlier run has left its records there.
constexpr const char* kRecords[] = {"train_results.json",    "eval_results.json", "predict_results.json",
                                    "test_results.json",     "all_results.json",  "trainer_state.json",
                                    "metrics.jsonl",         "run.json",          "metrics.previous.jsonl",
                                    "run.previous.json",     "predictions.jsonl", "model.safetensors.index.json",
                                    "eval_results.previous.json", "predict_results.previous.json"};

TEST_F(DatasetFiles, RecordsOfARunAreNoRows) {
  for (const char* name : kRecords) put(name);
  expect_refused({"has no file with rows"});
  put("rows.jsonl");
  EXPECT_EQ(dataset_files(folder_.path().string(), "train").size(), 1U);
  put("train.jsonl");
  EXPECT_EQ(dataset_files(folder_.path().string(), "train").size(), 1U);
}

class TableFiles : public DatasetFiles {
 protected:
  Names tables(const std::string& split) const {
    Names names;
    for (const auto& file : table_files(folder_.path().string(), split)) {
      names.push_back(file.lexically_relative(folder_.path()).string());
    }
    return names;
  }
};

TEST_F(TableFiles, SplitsAreFoundUnderHuggingFacesNames) {
  for (const auto* name : {"glue_train-00.csv", "glue_train-01.csv", "dev.csv", "my.testing.csv", "latest.csv", "trainer.csv"}) {
    put(name);
  }
  EXPECT_EQ(tables("train"), (Names{"glue_train-00.csv", "glue_train-01.csv"}));
  EXPECT_EQ(tables("validation"), Names{"dev.csv"});
  EXPECT_EQ(tables("test"), Names{"my.testing.csv"});
  EXPECT_EQ(tables("other"), Names{});
}

TEST_F(TableFiles, OfMatchedAndMismatchedEachIsItself) {
  put("dev_matched.tsv");
  put("dev_mismatched.tsv");
  EXPECT_EQ(tables("validation_matched"), Names{"dev_matched.tsv"});
  EXPECT_EQ(tables("validation_mismatched"), Names{"dev_mismatched.tsv"});
}

TEST_F(TableFiles, FoldersOfSplitsAndTheFolderDataAreSeen) {
  put("data/valid-0.jsonl");
  put("train/a.jsonl");
  put("train/b.jsonl");
  EXPECT_EQ(tables("validation"), Names{"data/valid-0.jsonl"});
  EXPECT_EQ(tables("train"), (Names{"train/a.jsonl", "train/b.jsonl"}));
}

TEST_F(TableFiles, RecordsOfARunAreNoSplits) {
  for (const char* name : kRecords) put(name);
  for (const char* split : {"train", "validation", "test"}) EXPECT_EQ(tables(split), Names{}) << split;
  put("train.csv");
  EXPECT_EQ(tables("train"), Names{"train.csv"});
  EXPECT_EQ(tables("test"), Names{});
}

TEST_F(TableFiles, AFileAloneIsToTrainOn) {
  put("rows.csv");
  put("config.json");
  EXPECT_EQ(tables("train"), Names{"rows.csv"});
  EXPECT_EQ(tables("validation"), Names{});
  const std::string file = (folder_.path() / "rows.csv").string();
  EXPECT_EQ(table_files(file, "train").size(), 1U);
  EXPECT_EQ(table_files(file, "test").size(), 0U);
  EXPECT_EQ(table_files_there(folder_.path().string()), "rows.csv");
}

}  // namespace
}  // namespace lockstep::data
