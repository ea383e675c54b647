// Tokens are made once, and never taken from a file that is not whole.
#include "lockstep/data/token_cache.h"

#include "data_pipeline/loading.h"

#include <atomic>
#include <thread>

namespace lockstep::data {
namespace {

using testing::expect_error;
using testing::tiny_tokenizer;

constexpr const char* kRows = R"({"prompt": "Two and two?", "completion": " Four.", "id": 1})" "\n"
                              R"({"prompt": "Three?", "completion": " Yes, three.", "id": 2})" "\n";

class TokenCache : public ::testing::Test {
 protected:
  TokenCache() {
    options_.dataset_name = (folder_.path() / "train.jsonl").string();
    options_.token_cache = (folder_.path() / "cache").string();
    write_file_atomically(*options_.dataset_name, kRows);
  }
  Dataset read(const std::string& template_source = "{{ messages[0]['content'] }}") {
    ThreadTeam team(1);
    const text::ChatTemplate chat_template(template_source);
    return load_sft_dataset(options_, tiny_tokenizer(), &chat_template, 1'000'000, team);
  }
  std::vector<fs::path> cache_files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(options_.token_cache)) {
      if (entry.path().extension() == ".tokens") files.push_back(entry.path());
    }
    return files;
  }
  static void expect_same(Dataset a, Dataset b) {
    ASSERT_EQ(a.rows.size(), b.rows.size());
    for (size_t i = 0; i < a.rows.size(); ++i) {
      EXPECT_EQ(a.rows[i].ids, b.rows[i].ids);
      EXPECT_EQ(a.rows[i].trained, b.rows[i].trained);
      EXPECT_EQ(a.rows[i].documents, b.rows[i].documents);
      EXPECT_EQ(a.rows[i].source_row, b.rows[i].source_row);
    }
    a.report.cache = b.report.cache = "";
    EXPECT_EQ(report_lines(a.report), report_lines(b.report));
    EXPECT_EQ(a.report.fingerprint, b.report.fingerprint);
    EXPECT_EQ(a.report.longest_document, b.report.longest_document);
  }

  TempFolder folder_{"token-cache"};
  DataOptions options_;
};

TEST_F(TokenCache, ASecondStartReadsWhatTheFirstOneKept) {
  const Dataset first = read();
  EXPECT_TRUE(first.report.cache.starts_with("kept in")) << first.report.cache;
  const Dataset second = read();
  EXPECT_TRUE(second.report.cache.starts_with("read from")) << second.report.cache;
  expect_same(first, second);
  EXPECT_EQ(cache_files().size(), 1U);
}

TEST_F(TokenCache, KeepsPackedRows) {
  options_.packing = true;
  options_.max_length = 16;
  const Dataset first = read();
  ASSERT_FALSE(first.rows[0].documents.empty());
  const Dataset second = read();
  EXPECT_TRUE(second.report.cache.starts_with("read from"));
  expect_same(first, second);
}

TEST_F(TokenCache, WhateverDecidesTheTokensIsInTheKey) {
  read();
  options_.max_length = 8;
  EXPECT_TRUE(read().report.cache.starts_with("kept in")) << "an option";
  EXPECT_TRUE(read("{{ messages[0]['content'] }}.").report.cache.starts_with("kept in")) << "the template";
  options_.packing = true;
  EXPECT_TRUE(read().report.cache.starts_with("kept in")) << "packing";
  std::string content = kRows;
  content[content.find("Two")] = 't';
  write_file_atomically(*options_.dataset_name, content);
  EXPECT_TRUE(read().report.cache.starts_with("kept in")) << "the data";
  EXPECT_EQ(cache_files().size(), 5U);
}

TEST_F(TokenCache, DamagedFilesAreMadeAnew) {
  const Dataset first = read();
  const fs::path file = cache_files().at(0);
  const std::string good = read_file(file);
  std::vector<std::string> damaged{"", "short", good.substr(0, good.size() - 8), good + "12345678"};
  for (const size_t at : {size_t{3}, size_t{12}, size_t{20}, size_t{50}, good.size() / 2, good.size() - 9}) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 1);
  }
  for (size_t i = 0; i < damaged.size(); ++i) {
    SCOPED_TRACE(i);
    write_file_atomically(file, damaged[i]);
    std::string fault;
    EXPECT_FALSE(read_token_cache(file, fault));
    EXPECT_FALSE(fault.empty());
    const Dataset again = read();
    EXPECT_TRUE(again.report.cache.starts_with("kept in"));
    expect_same(first, again);
    EXPECT_EQ(read_file(file), good);
  }
}

TEST_F(TokenCache, OfManyThatRaceOneMakesTheTokens) {
  const Dataset dataset = read();
  const fs::path file = folder_.path() / "race.tokens";
  std::atomic<int> made = 0, equal = 0;
  {
    std::vector<std::jthread> racers;
    for (int i = 0; i < 8; ++i) {
      racers.emplace_back([&] {
        const Dataset mine = cached_dataset(file, [&] {
          ++made;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          return dataset;
        });
        equal += mine.report.fingerprint == dataset.report.fingerprint && mine.rows.size() == dataset.rows.size();
      });
    }
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(equal, 8);
}

TEST_F(TokenCache, AFolderThatCannotBeHadIsAnErrorWhereItWasNamed) {
  options_.token_cache = *options_.dataset_name + "/cache";
  expect_error(ErrorKind::Environment, {"--token_cache", "train.jsonl/cache"}, [&] { read(); });
}

TEST_F(TokenCache, SmallDataIsNotKeptUnlessAFolderIsNamed) {
  options_.token_cache = "auto";
  EXPECT_EQ(read().report.cache, "");
  options_.token_cache = "none";
  EXPECT_EQ(read().report.cache, "");
}

TEST_F(TokenCache, AFailedPreparationLeavesNothing) {
  write_file_atomically(*options_.dataset_name, "{\"text\": 3}\n");
  expect_error(ErrorKind::Data, {"train.jsonl:1"}, [&] { read(); });
  EXPECT_TRUE(cache_files().empty());
}

}  // namespace
}  // namespace lockstep::data
