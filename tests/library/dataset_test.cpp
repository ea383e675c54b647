// Rows, columns and tokens.
#include "tiny_parts.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using library_test::kPairs;
using library_test::kTinyBert;
using library_test::write_text;

std::string dataset_text(const Row& row, const std::string& column) { return std::get<std::string>(row.at(column)); }

TEST(Dataset, ReadsSplitsInAllFormats) {
  const TempFolder folder("lockstep-library-test");
  write_text(folder.path() / "train.csv", "text,label\n\"a, b\",1\nc,0\n");
  write_text(folder.path() / "dev.tsv", "text\tlabel\nd \"e\"\t1\n");
  write_text(folder.path() / "test.jsonl", "{\"text\": \"f\", \"label\": null}\n");
  const DatasetDict data = load_dataset(folder.path().string());
  EXPECT_EQ(data.names(), (std::vector<std::string>{"test", "train", "validation"}));
  EXPECT_EQ(data["train"].num_rows(), 2U);
  EXPECT_EQ(dataset_text(data["train"][0], "text"), "a, b");
  EXPECT_EQ(dataset_text(data["validation"][0], "text"), "d \"e\"");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(data["test"][0].at("label")));
  EXPECT_EQ(load_dataset({{"mine", (folder.path() / "train.csv").string()}})["mine"].num_rows(), 2U);
}

TEST(Dataset, MapsRenamesFiltersAndTakes) {
  const Dataset rows = Dataset::from_rows({{{"text", "one"}, {"score", int64_t{0}}}, {{"text", "two"}, {"score", int64_t{1}}}});
  const Dataset upper = rows.map([](const Row& row) {
    Row changed = row;
    changed["text"] = dataset_text(row, "text") + "!";
    return changed;
  });
  EXPECT_EQ(dataset_text(upper[1], "text"), "two!");
  EXPECT_EQ(dataset_text(rows[1], "text"), "two");
  EXPECT_EQ(upper.rename_column("score", "label").column_names(), (std::vector<std::string>{"label", "text"}));
  EXPECT_EQ(upper.remove_columns({"score"}).column_names(), std::vector<std::string>{"text"});
  const Dataset kept = upper.filter([](const Row& row) { return std::get<int64_t>(row.at("score")) == 1; });
  EXPECT_EQ(kept.num_rows(), 1U);
  EXPECT_EQ(dataset_text(kept[0], "text"), "two!");
  EXPECT_EQ(upper.take(1).num_rows(), 1U);
  EXPECT_EQ(upper.take(9).num_rows(), 2U);
}

TEST(Dataset, TokensAreTheTokenizersAndFollowTheirRows) {
  const Tokenizer tokenizer = Tokenizer::from_pretrained(kTinyBert);
  const Dataset rows = load_dataset(kPairs)["validation"].take(5);
  const Dataset mapped = rows.map(tokenizer, {.text = "question", .text_pair = "solution", .truncation = true, .max_length = 32});
  const Encoding expected = tokenizer.encode(dataset_text(rows[3], "question"), dataset_text(rows[3], "solution"),
                                             {.truncation = true, .max_length = 32});
  ASSERT_EQ(expected.input_ids.size(), 32U);
  const auto same_ids = [&](const Row& row) {
    const auto& ids = std::get<std::vector<Scalar>>(row.at("input_ids"));
    const auto& types = std::get<std::vector<Scalar>>(row.at("token_type_ids"));
    bool same = ids.size() == expected.input_ids.size() && types.size() == ids.size();
    for (size_t i = 0; same && i < ids.size(); ++i) {
      same = std::get<int64_t>(ids[i]) == expected.input_ids[i] && std::get<int64_t>(types[i]) == expected.token_type_ids[i];
    }
    return same;
  };
  EXPECT_TRUE(same_ids(mapped[3]));
  EXPECT_TRUE(same_ids(mapped.rename_column("label", "labels")[3]));
  const std::string question = dataset_text(rows[3], "question");
  const Dataset found = mapped.filter([&](const Row& row) { return dataset_text(row, "question") == question; });
  ASSERT_GE(found.num_rows(), 1U);
  EXPECT_TRUE(same_ids(found[0]) || found.num_rows() > 1);
  EXPECT_EQ(tokenizer.decode(expected.input_ids, true), tokenizer.decode(expected.input_ids));
}

TEST(Dataset, FindsColumnsAsTheCommandDoes) {
  const Tokenizer tokenizer = Tokenizer::from_pretrained(kTinyBert);
  const Dataset rows = Dataset::from_rows({{{"#1 String", "a b"}, {"#2 String", "c"}, {"Quality", int64_t{1}}}});
  EXPECT_EQ(rows.map(tokenizer, {.task = "mrpc"})[0].at("input_ids"),
            rows.map(tokenizer, {.text = "#1 String", .text_pair = "#2 String"})[0].at("input_ids"));
  const Dataset single = Dataset::from_rows({{{"review", "good"}, {"label", int64_t{1}}}});
  EXPECT_EQ(single.map(tokenizer)[0].at("input_ids"), single.map(tokenizer, {.text = "review"})[0].at("input_ids"));
}

}  // namespace
}  // namespace lockstep
