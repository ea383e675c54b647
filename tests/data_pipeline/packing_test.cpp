// Packing held against trl 1.16 (tests/data/packing/make_packing.py), and what the rows become.
#include "lockstep/data/packing.h"

#include "data_pipeline/loading.h"

#include <nlohmann/json.hpp>

#include <numeric>

namespace lockstep::data {
namespace {

using testing::expect_error;
using testing::load;
using testing::LoadWith;

using Ids = std::vector<int32_t>;

TEST(Packing, GivesTheBinsOfTrl) {
  const auto cases = nlohmann::json::parse(read_file(LOCKSTEP_TEST_DATA "/packing/packing.json"));
  ASSERT_GE(cases.size(), 10U);
  for (const auto& one : cases) {
    const std::string strategy = one["strategy"];
    const auto lengths = one["lengths"].get<std::vector<int64_t>>();
    std::vector<Bin> expected;
    for (const auto& bin : one["bins"]) {
      expected.emplace_back();
      for (const auto& piece : bin) expected.back().push_back({piece[0], piece[1], piece[2]});
    }
    const auto bins = plan_packing(lengths, one["max_length"], packing_strategy(strategy));
    EXPECT_EQ(bins, expected) << strategy << " of " << lengths.size();
  }
}

std::string four_rows() {
  return R"({"input_ids": [1, 2, 3, 4, 5]})" "\n" R"({"input_ids": [6, 7]})" "\n"
         R"({"input_ids": [8, 9, 10]})" "\n" R"({"input_ids": [11]})" "\n";
}

LoadWith packed(const std::string& strategy, int64_t max_length = 4) {
  LoadWith with;
  with.options.packing = true;
  with.options.packing_strategy = strategy;
  with.options.max_length = max_length;
  return with;
}

std::vector<Ids> ids_of(const Dataset& dataset) {
  std::vector<Ids> all;
  for (const TokenRow& row : dataset.rows) all.push_back(row.ids);
  return all;
}

std::vector<std::vector<int64_t>> lengths_of(const Dataset& dataset) {
  std::vector<std::vector<int64_t>> all;
  for (const TokenRow& row : dataset.rows) {
    all.emplace_back();
    for (const auto& document : row.documents) all.back().push_back(document.length);
  }
  return all;
}

TEST(Packing, OfTheExampleInTrlsDocumentation) {
  const auto bfd = load(four_rows(), packed("bfd"));
  EXPECT_EQ(ids_of(bfd), (std::vector<Ids>{{1, 2, 3, 4}, {8, 9, 10, 11}, {6, 7}}));
  EXPECT_EQ(lengths_of(bfd), (std::vector<std::vector<int64_t>>{{4}, {3, 1}, {2}}));
  EXPECT_EQ(bfd.report.packing->num_tokens, 10);
  EXPECT_EQ(bfd.report.packing->num_tokens_lost, 1);
  EXPECT_EQ(bfd.report.packing->num_rows_cut, 1);
  const auto split = load(four_rows(), packed("bfd_split"));
  EXPECT_EQ(ids_of(split), (std::vector<Ids>{{1, 2, 3, 4}, {8, 9, 10, 5}, {6, 7, 11}}));
  EXPECT_EQ(lengths_of(split), (std::vector<std::vector<int64_t>>{{4}, {3, 1}, {2, 1}}));
  EXPECT_EQ(split.report.packing->num_tokens, 11);
  EXPECT_EQ(split.report.packing->num_tokens_lost, 0);
  EXPECT_EQ(split.report.packing->num_rows_cut, 1);
  EXPECT_EQ(split.rows[1].documents[1].source_row, 0);
  const auto wrapped = load(four_rows(), packed("wrapped"));
  EXPECT_EQ(ids_of(wrapped), (std::vector<Ids>{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11}}));
  EXPECT_EQ(lengths_of(wrapped), (std::vector<std::vector<int64_t>>{{}, {}, {}})) << "one document each";
  EXPECT_EQ(wrapped.report.packing->num_rows_cut, 2);
}

TEST(Packing, FirstTokensOfDocumentsAreNoTargets) {
  const auto dataset = load(four_rows(), packed("bfd"));
  EXPECT_EQ(dataset.rows[1].num_targets(), 2);
  EXPECT_EQ(dataset.report.num_targets, 3 + 2 + 1);
  EXPECT_EQ(load(four_rows(), packed("wrapped")).rows[1].num_targets(), 3);
}

TEST(Packing, RowsWithoutATargetAreLeftOutAndCounted) {
  const auto dataset = load(four_rows() + R"({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, -100, -100]})", packed("bfd"));
  EXPECT_EQ(dataset.report.num_fully_masked, 0) << "documents stay, as in trl";
  EXPECT_EQ(dataset.report.packing->num_packed, 4);
  EXPECT_EQ(dataset.report.packing->num_without_target, 1);
  EXPECT_EQ(dataset.rows.size(), 3U);
  expect_error(ErrorKind::Data, {"no packed row has a trained token", "--max_length = 4"},
               [] { load(R"({"input_ids": [1, 2, 3], "labels": [-100, -100, -100]})", packed("bfd")); });
}

TEST(Packing, IsReportedWithWhatIsLostAndAWarningForWrapped) {
  const auto text = [](const std::string& strategy) {
    std::string all;
    for (const std::string& line : report_lines(load(four_rows(), packed(strategy)).report)) all += line + "\n";
    return all;
  };
  EXPECT_NE(text("bfd").find("bfd: 4 documents in 3 rows of at most 4 tokens (83.3 % full); tokens: 10 kept, 1 lost"),
            std::string::npos) << text("bfd");
  EXPECT_NE(text("bfd_split").find("1 row cut into several documents"), std::string::npos) << text("bfd_split");
  EXPECT_EQ(text("bfd").find("WARNING"), std::string::npos);
  EXPECT_NE(text("wrapped").find("WARNING"), std::string::npos) << text("wrapped");
}

TEST(Packing, ShowsInTheFingerprint) {
  std::vector<std::string> prints;
  for (const char* strategy : {"bfd", "bfd_split", "wrapped"}) prints.push_back(load(four_rows(), packed(strategy)).report.fingerprint);
  prints.push_back(load(four_rows(), packed("bfd", 5)).report.fingerprint);
  prints.push_back(load(four_rows()).report.fingerprint);
  std::sort(prints.begin(), prints.end());
  EXPECT_EQ(std::adjacent_find(prints.begin(), prints.end()), prints.end());
}

TEST(Packing, NeedsALengthAndKeepsTheStart) {
  LoadWith with = packed("bfd");
  with.options.max_length.reset();
  expect_error(ErrorKind::Usage, {"--packing with --max_length none"}, [&] { load(four_rows(), with); });
  LoadWith keep_end = packed("bfd");
  keep_end.options.truncation_mode = "keep_end";
  expect_error(ErrorKind::Usage, {"--truncation_mode keep_end with --packing"}, [&] { load(four_rows(), keep_end); });
}

TEST(Packing, OfTheEvaluationIsThatOfTheTrainingUnlessSaidOtherwise) {
  const TempFolder folder("packing-evaluation");
  write_file_atomically(folder.path() / "train.jsonl", four_rows());
  write_file_atomically(folder.path() / "test.jsonl", four_rows());
  LoadWith with = packed("bfd");
  with.options.dataset_name = folder.path().string();
  ThreadTeam team(1);
  const auto num_rows = [&](std::optional<bool> eval_packing) {
    with.options.eval_packing = eval_packing;
    return load_sft_evaluation(with.options, with.tokenizer, nullptr, with.vocab_size, team).rows.size();
  };
  EXPECT_EQ(num_rows({}), 3U);
  EXPECT_EQ(num_rows(true), 3U);
  EXPECT_EQ(num_rows(false), 3U) << "the row of one token is dropped";
  with.options.packing = false;
  EXPECT_TRUE(load_sft_evaluation(with.options, with.tokenizer, nullptr, with.vocab_size, team).rows[0].documents.empty());
}

}  // namespace
}  // namespace lockstep::data
