// Formats, compression, patterns, mixtures and streaming.
#include "lockstep/data/sources.h"

#include "data_pipeline/loading.h"
#include "lockstep/data/dataset_files.h"

#include <nlohmann/json.hpp>
#include <zlib.h>
#include <zstd.h>

namespace lockstep::data {
namespace {

using testing::encoded;
using testing::expect_error;
using testing::load;
using testing::LoadWith;
using testing::tiny_tokenizer;

std::string gzipped(const std::string& text) {
  const TempFolder folder("gzip");
  const std::string path = (folder.path() / "x.gz").string();
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return read_file(path);
}

std::string zstd_packed(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

class Sources : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& content) {
    fs::create_directories((folder_.path() / name).parent_path());
    write_file_atomically(folder_.path() / name, content);
    return (folder_.path() / name).string();
  }
  Dataset read(DataOptions options, std::optional<int64_t> max_samples = {}) {
    ThreadTeam team(2);
    const text::ChatTemplate chat_template(*tiny_tokenizer().chat_template());
    return load_sft_dataset(options, tiny_tokenizer(), &chat_template, 1'000'000, team, max_samples);
  }
  Dataset read_name(const std::string& name) {
    DataOptions options;
    options.dataset_name = name;
    return read(options);
  }
  Dataset read_mixture(std::vector<std::string> entries) {
    DataOptions options;
    options.datasets = std::move(entries);
    for (std::string& entry : options.datasets) {
      for (size_t at; (at = entry.find("DIR")) != std::string::npos;) entry.replace(at, 3, folder_.path().string());
    }
    return read(options);
  }
  /// Rows of `count` tokens: the number of the row.
  static std::string token_rows(int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) text += fmt::format("{{\"input_ids\": [{0}, {0}]}}\n", i % 512);
    return text;
  }
  static std::vector<int32_t> first_tokens(const Dataset& dataset) {
    std::vector<int32_t> ids;
    for (const TokenRow& row : dataset.rows) ids.push_back(row.ids[0]);
    return ids;
  }

  TempFolder folder_{"sources"};
};

constexpr const char* kCsv = "prompt,completion,note\n\"One, \"\"two\"\"\",Three,\nFour,\"Five\nSix\",x\n";
constexpr const char* kJson = R"({"prompt": "One, \"two\"", "completion": "Three"})" "\n"
                              R"({"prompt": "Four", "completion": "Five\nSix", "note": "x"})" "\n";

TEST_F(Sources, EveryTextFormatAndCompressionGivesTheSameRows) {
  const std::string tsv = "prompt\tcompletion\n\"One, \"\"two\"\"\"\tThree\nFour\t\"Five\nSix\"\n";
  const std::string expected = load(kJson).report.fingerprint;
  const std::vector<std::pair<std::string, std::string>> files{
      {"a.jsonl", kJson}, {"a.csv", kCsv}, {"a.tsv", tsv}, {"a.JSONL.GZ", gzipped(kJson)}, {"a.json.zst", zstd_packed(kJson)},
      {"a.csv.gz", gzipped(kCsv)}, {"a.tsv.zst", zstd_packed(tsv)}, {"two.jsonl.gz", gzipped(kJson).substr(0)}};
  for (const auto& [name, content] : files) EXPECT_EQ(read_name(put(name, content)).report.fingerprint, expected) << name;
  // Members behind each other are one text.
  const std::string first = "{\"text\": \"One\"}\n", second = "{\"text\": \"Two\"}\n";
  EXPECT_EQ(read_name(put("m.jsonl.gz", gzipped(first) + gzipped(second))).rows.size(), 2U);
  EXPECT_EQ(read_name(put("m.jsonl.zst", zstd_packed(first) + zstd_packed(second))).rows.size(), 2U);
}

TEST_F(Sources, LinesOfATextFileAreRows) {
  const auto dataset = read_name(put("a.txt", "One two.\r\n\nThree.\n"));
  ASSERT_EQ(dataset.rows.size(), 2U);
  EXPECT_EQ(dataset.rows[0].ids, encoded("One two.<|im_end|>"));
  EXPECT_EQ(dataset.report.kind, "text");
}

TEST_F(Sources, PatternsGiveTheFilesByName) {
  put("b.jsonl", token_rows(20, 1));
  put("a.jsonl", token_rows(10, 2));
  put("a.md", "no data");
  EXPECT_EQ(first_tokens(read_name((folder_.path() / "*").string())), (std::vector<int32_t>{10, 11, 20}));
  EXPECT_EQ(first_tokens(read_name((folder_.path() / "[b]*.jsonl").string())), (std::vector<int32_t>{20}));
}

TEST_F(Sources, MixturesTakeTrlsShares) {
  put("a.jsonl", token_rows(100, 10));
  put("b.jsonl", token_rows(200, 3));
  const auto whole = read_mixture({R"({"path": "DIR/a.jsonl"})", R"({"path": "DIR/b.jsonl"})"});
  EXPECT_EQ(whole.rows.size(), 13U);
  EXPECT_TRUE(whole.report.mixture.empty());
  // weights 0.7 and 0.3 of N = min(10 / 0.7, 3 / 0.3) = 10
  const auto shares = read_mixture({R"({"path": "DIR/a.jsonl", "fraction": 7})", R"({"path": "DIR/b.jsonl", "fraction": 3})"});
  EXPECT_EQ(first_tokens(shares), (std::vector<int32_t>{100, 101, 102, 103, 104, 105, 106, 200, 201, 202}));
  EXPECT_EQ(shares.report.mixture.size(), 2U);
  EXPECT_NE(shares.report.mixture[0].find("the first 7 of 10 rows"), std::string::npos);
  // 2.5 rounds to 2, as in Python
  put("c.jsonl", token_rows(300, 5));
  EXPECT_EQ(read_mixture({R"({"path": "DIR/c.jsonl", "fraction": 0.5})", R"({"path": "DIR/a.jsonl", "fraction": 1})",
                          R"({"path": "DIR/b.jsonl", "fraction": 0})"}).rows.size(), 15U);
  EXPECT_EQ(read_mixture({R"([{"path": "DIR/b.jsonl"}, {"path": "DIR/b.jsonl"}])"}).rows.size(), 6U) << "one JSON list";
}

TEST_F(Sources, EntriesOfAMixtureNameFilesSplitsAndColumns) {
  put("f/validation.jsonl", token_rows(1, 1));
  put("f/inner/x.jsonl", R"({"text": "One", "prompt": "Two", "completion": "Three"})");
  EXPECT_EQ(read_mixture({R"({"path": "DIR/f", "split": "validation"})"}).rows.size(), 1U);
  const auto text = read_mixture({R"({"path": "DIR/f", "data_dir": "inner", "data_files": "x.jsonl", "columns": ["text"]})"});
  EXPECT_EQ(text.report.kind, "text");
  EXPECT_EQ(read_mixture({R"({"path": "json", "data_files": {"train": ["DIR/f/inner/x.jsonl"]}})"}).report.kind,
            "prompt-completion (text)");
}

TEST_F(Sources, StreamingReadsNoMoreThanIsNeeded) {
  DataOptions options;
  options.dataset_name = put("a.jsonl", token_rows(0, 3000) + "{broken\n");
  const auto some = read(options, 5);
  EXPECT_EQ(first_tokens(some), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  options.packing = true;
  options.max_length = 8;
  const auto packed = read(options, 250);
  EXPECT_EQ(packed.rows.size(), 250U);
  EXPECT_EQ(packed.rows[0].ids, (std::vector<int32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(packed.report.num_rows, 1000) << "whole groups";
  expect_error(ErrorKind::Data, {"a.jsonl:3001"}, [&] { read(options, 2000); });
}

struct BadSource {
  std::string name;     ///< written with `content`, and given as --dataset_name
  std::string content;
  std::vector<std::string> words;
};

TEST_F(Sources, AreRefusedWithWhatIsWrongAndARemedy) {
  const std::string arrow = LOCKSTEP_TEST_DATA "/arrow/";
  const std::string parquet = read_file(arrow + "rows.parquet");
  std::string flipped = parquet;
  for (size_t i = 100; i < 300; ++i) flipped[i] = static_cast<char>(flipped[i] ^ 0x5a);
  const std::string packed_gzip = gzipped(kJson), packed_zstd = zstd_packed(kJson);
  std::vector<BadSource> cases{
      {"cut.jsonl.gz", packed_gzip.substr(0, packed_gzip.size() - 12), {"cut.jsonl.gz: is damaged or no gzip file", "ends too early"}},
      {"no.jsonl.gz", kJson, {"no.jsonl.gz: is damaged or no gzip file"}},
      {"empty.jsonl.gz", "", {"empty.jsonl.gz", "ends too early"}},
      {"cut.jsonl.zst", packed_zstd.substr(0, packed_zstd.size() - 5), {"cut.jsonl.zst: is damaged or no zstd file", "ends too early"}},
      {"no.jsonl.zst", kJson, {"no.jsonl.zst: is damaged or no zstd file"}},
      {"line.jsonl.gz", gzipped("{\"text\": \"a b\"}\n{broken"), {"line.jsonl.gz:2: not valid JSON"}},
      {"rows.jsonl.bz2", "x", {".bz2 files are not read"}},
      {"rows.zip", "x", {".zip files are not read"}},
      {"rows.pkl", "x", {".pkl files are not read"}},
      {"wide.csv", "text\na,b\n", {"wide.csv:2: 2 cells, but the file has 1 columns"}},
      {"open.csv", "text\n\"a\n", {"open.csv:2"}},
      {"empty.csv", "", {"empty.csv is empty", "first line must name the columns"}},
      {"null.csv", "prompt,completion\na,\n", {"null.csv:2", "the value of completion is null"}},
  };
#ifdef LOCKSTEP_ARROW_FOUND
  cases.push_back({"cut.parquet", parquet.substr(0, parquet.size() / 2), {"cut.parquet: is damaged", "Write it again"}});
  cases.push_back({"flipped.parquet", flipped, {"flipped.parquet"}});
  cases.push_back({"tiny.parquet", "PAR1", {"tiny.parquet: is damaged"}});
  cases.push_back({"json.parquet", kJson, {"json.parquet: is damaged"}});
  cases.push_back({"empty.parquet", "", {"empty.parquet"}});
  const std::string stream = read_file(arrow + "types.arrow"), file = read_file(arrow + "file.arrow");
  cases.push_back({"cut.arrow", stream.substr(0, stream.size() - 400), {"cut.arrow: is damaged", "after 0 rows"}});
  cases.push_back({"cutfile.arrow", file.substr(0, file.size() - 50), {"cutfile.arrow: is damaged"}});
  cases.push_back({"old.arrow", "FEA1 old", {"old.arrow", "Feather file of version 1"}});
  cases.push_back({"types.arrow", stream, {"types.arrow, item 1: no column to train on", "dictionary"}});
#endif
  for (const BadSource& bad : cases) {
    SCOPED_TRACE(bad.name);
    const std::string path = put(bad.name, bad.content);
    expect_error(ErrorKind::Data, bad.words, [&] { read_name(path); });
  }
}

TEST_F(Sources, FoldersAreRefusedToo) {
  put("two/train.jsonl", kJson);
  put("two/train.csv", kCsv);
  expect_error(ErrorKind::Data, {"files of two formats", "train.csv", "train.jsonl"}, [&] { read_name((folder_.path() / "two").string()); });
  expect_error(ErrorKind::Data, {"no file that is read matches this pattern"}, [&] { read_name((folder_.path() / "q*").string()); });
  expect_error(ErrorKind::Data, {"'**' is not there yet"}, [&] { read_name((folder_.path() / "**/x").string()); });
  put("saved/dataset_info.json", "{}");
  put("saved/state.json", R"({"_data_files": [{"filename": "data-0.arrow"}]})");
  expect_error(ErrorKind::Data, {"lists data-0.arrow, which is not there", "save_to_disk"}, [&] { read_name((folder_.path() / "saved").string()); });
  put("saved/state.json", "{}");
  expect_error(ErrorKind::Data, {"state.json: has no list _data_files"}, [&] { read_name((folder_.path() / "saved").string()); });
  put("dict/dataset_dict.json", R"({"splits": ["test"]})");
  expect_error(ErrorKind::Data, {"has no split 'train' (found: test)"}, [&] { read_name((folder_.path() / "dict").string()); });
}

TEST_F(Sources, EntriesOfAMixtureAreRefusedByNumber) {
  put("a.jsonl", token_rows(0, 2));
  put("t.jsonl", R"({"text": "One"})");
  const std::string a = R"({"path": "DIR/a.jsonl", "fraction": 1})";
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> usage{
      {{a, R"({"path": "DIR/t.jsonl"})"}, {"entry 2: has no fraction, but others have"}},
      {{R"({"path": "DIR/a.jsonl", "weight": 0.5})"}, {"entry 1: unknown key weight", "is called fraction"}},
      {{R"({"path": "DIR/a.jsonl", "fraction": -1})"}, {"fraction = -1: must be a number of at least 0"}},
      {{R"({"path": "DIR/a.jsonl", "fraction": "half"})"}, {"fraction = \"half\""}},
      {{R"({"path": "DIR/a.jsonl", "fraction": 0})"}, {"all fractions are 0"}},
      {{R"({"split": "train"})"}, {"entry 1: has no path"}},
      {{R"({"path": "DIR/a.jsonl", "name": "main"})"}, {"name = main is a configuration"}},
      {{R"({"path": "DIR/a.jsonl", "split": "train[:10%]"})"}, {"split = train[:10%]", "fraction"}},
      {{R"({"path": "DIR/a.jsonl", "columns": [3]})"}, {"columns must be a string or a list of strings"}},
      {{R"({"path": "DIR", "data_files": {"test": "a.jsonl"}})"}, {"data_files has no split 'train' (found: test)"}},
      {{R"(["x"])"}, {"entry 1: is string"}},
      {{"[]"}, {"the list is empty"}},
  };
  for (const auto& [entries, words] : usage) {
    SCOPED_TRACE(entries.back());
    expect_error(ErrorKind::Usage, words, [&, &entries = entries] { read_mixture(entries); });
  }
  expect_error(ErrorKind::Data, {"entry 1", "not valid JSON"}, [&] { read_mixture({R"({"path")"}); });
  expect_error(ErrorKind::Data, {"has no column body (found: input_ids)"},
               [&] { read_mixture({R"({"path": "DIR/a.jsonl", "columns": ["body"]})"}); });
  expect_error(ErrorKind::Data, {"t.jsonl:1", "kind text", "kind token ids", "a.jsonl:1"},
               [&] { read_mixture({R"({"path": "DIR/a.jsonl"})", R"({"path": "DIR/t.jsonl"})"}); });
  DataOptions streaming;
  streaming.datasets = {fmt::format(R"({{"path": "{}/a.jsonl", "fraction": 1}})", folder_.path().string())};
  streaming.streaming = true;
  expect_error(ErrorKind::Usage, {"entry 1: fractions need the number of rows"}, [&] { read(streaming, 1); });
}

#ifdef LOCKSTEP_ARROW_FOUND

std::vector<nlohmann::json> rows_of(const std::vector<fs::path>& files) {
  std::vector<nlohmann::json> rows;
  RowSource source({{.name = "test", .files = files}});
  while (const auto row = source.next()) rows.push_back(nlohmann::json::parse(row->value.json()));
  return rows;
}

const fs::path kArrow = LOCKSTEP_TEST_DATA "/arrow";

std::vector<nlohmann::json> expected_rows() { return rows_of({kArrow / "expected.jsonl"}); }

TEST(ArrowFiles, ReadBackEqualToWhatDatasetsWrote) {
  const auto expected = expected_rows();
  ASSERT_EQ(expected.size(), 7U);
  for (const char* name : {"rows.parquet", "rows_zstd.parquet", "rows_gzip.parquet", "rows_brotli.parquet", "rows_lz4.parquet",
                           "file.arrow"}) {
    EXPECT_EQ(rows_of({kArrow / name}), expected) << name;
  }
  EXPECT_EQ(rows_of(dataset_files((kArrow / "saved").string(), "train")), expected);
}

TEST(ArrowFiles, OfSaveToDiskHaveTheirSplits) {
  const auto expected = expected_rows();
  const std::string folder = (kArrow / "saved_splits").string();
  EXPECT_EQ(rows_of(dataset_files(folder, "train")), std::vector(expected.begin(), expected.begin() + 5));
  EXPECT_EQ(rows_of(dataset_files_of_split(folder, "test")), std::vector(expected.begin() + 5, expected.end()));
  EXPECT_TRUE(dataset_files_of_split(folder, "validation").empty());
}

TEST(ArrowFiles, EveryTypeHasAPlaceInJson) {
  const auto rows = rows_of({kArrow / "types.arrow"});
  ASSERT_EQ(rows.size(), 2U);
  const auto first = nlohmann::json::parse(R"j({"i8": -1, "u64": 9223372036854775808, "f64": 0.1, "dictionary": "a",
    "view": "long enough to be no inline text", "bytes": "(2 bytes)", "fixed": [1, 2], "large": [1.5],
    "date": "1970-01-01", "map": [["k", 1]], "null": null})j");
  EXPECT_EQ(rows[0], first);
  EXPECT_TRUE(rows[1]["f64"].is_null());
  EXPECT_TRUE(rows[1]["large"].is_null());
  EXPECT_EQ(rows[1]["dictionary"], "b");
}

#else

TEST(ArrowFiles, AreRefusedByABuildWithoutArrow) {
  expect_error(ErrorKind::Environment, {"rows.parquet", "which this build does not have", "scripts/setup"},
               [] { open_rows(LOCKSTEP_TEST_DATA "/arrow/rows.parquet"); });
}

#endif

}  // namespace
}  // namespace lockstep::data
