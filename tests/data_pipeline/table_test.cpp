#include "lockstep/data/table.h"

#include "data_pipeline/loading.h"

#include <algorithm>
#include <chrono>

namespace lockstep::data::testing {
namespace {

/// All rows of `content` in a file of this name.
std::vector<TableRow> rows_of(const std::string& name, const std::string& content,
                              std::optional<std::vector<std::string>> columns = {}) {
  const TempFolder folder("table");
  write_file_atomically(folder.path() / name, content);
  TableReader reader(folder.path() / name, std::move(columns));
  std::vector<TableRow> rows;
  while (auto row = reader.next()) rows.push_back(*std::move(row));
  return rows;
}

std::string cell_text(const TableRow& row, std::string_view column) { return std::get<std::string>(row.at(column)); }

TEST(Csv, ReadsQuotedCellsAsRfc4180) {
  const auto rows = rows_of("a.csv", "text,label\r\n\"one, \"\"two\"\"\nthree\",1\r\nplain \"quote\",0\r\n\"\",\n");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(cell_text(rows[0], "text"), "one, \"two\"\nthree");
  EXPECT_EQ(cell_text(rows[0], "label"), "1");
  EXPECT_EQ(cell_text(rows[1], "text"), "plain \"quote\"");
  EXPECT_EQ(cell_text(rows[2], "text"), "");
  EXPECT_EQ(cell_text(rows[2], "label"), "");
  EXPECT_FALSE(rows[0].is_typed);
}

TEST(Csv, ALineBreakInACellCountsForThePlaces) {
  const auto rows = rows_of("a.csv", "a,b\n\"x\ny\nz\",1\nq,2\n");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].place.text().ends_with("a.csv:2"));
  EXPECT_TRUE(rows[1].place.text().ends_with("a.csv:5"));
}

TEST(Csv, AcceptsAByteOrderMarkBlankLinesAndNoLastLineEnd) {
  const auto rows = rows_of("A.CSV", "\xEF\xBB\xBF" "a,b\n\n1,2\n\r\n3,4");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(cell_text(rows[0], "a"), "1");
  EXPECT_EQ(cell_text(rows[1], "b"), "4");
  EXPECT_TRUE(rows[1].place.text().ends_with(":5"));
}

TEST(Tsv, QuotesArePlainCharacters) {
  const auto rows = rows_of("a.tsv", "sentence1\tsentence2\n\"So,\" he said.\tAn \"unclosed one.\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(cell_text(rows[0], "sentence1"), "\"So,\" he said.");
  EXPECT_EQ(cell_text(rows[0], "sentence2"), "An \"unclosed one.");
}

TEST(Tsv, AShortLineHasNullsAndNamesGivenReplaceTheHeader) {
  const auto rows = rows_of("a.tsv", "x\t1\ny\n", std::vector<std::string>{"text", "label"});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(cell_text(rows[0], "label"), "1");
  EXPECT_TRUE(is_null(rows[1].at("label")));
  EXPECT_TRUE(is_null(rows[1].at("no such column")));
}

TEST(JsonTable, KeepsTheKindsOfValues) {
  const auto rows = rows_of("a.jsonl", R"({"t": "x", "i": 3, "f": 2.5, "b": true, "n": null, "l": ["a", 1], "o": {"k": 1}}
{"t": "y", "big": 18446744073709551615}
)");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].is_typed);
  EXPECT_EQ(std::get<int64_t>(rows[0].at("i")), 3);
  EXPECT_EQ(std::get<double>(rows[0].at("f")), 2.5);
  EXPECT_TRUE(std::get<bool>(rows[0].at("b")));
  EXPECT_TRUE(is_null(rows[0].at("n")));
  EXPECT_TRUE(is_null(rows[0].at("o"))) << "objects are no values of a table";
  const auto& list = std::get<ScalarList>(rows[0].at("l"));
  EXPECT_EQ(std::get<std::string>(list[0]), "a");
  EXPECT_EQ(std::get<int64_t>(list[1]), 1);
  EXPECT_FALSE(rows[1].has_column("i"));
  EXPECT_EQ(std::get<double>(rows[1].at("big")), 18446744073709551615.0);
  EXPECT_EQ(shown(rows[0].at("l")), "[a, 1]");
  EXPECT_EQ(kind_words(rows[0].at("f")), "a number");
}

TEST(JsonTable, AnArrayHasItemsForPlaces) {
  const auto rows = rows_of("a.json", R"([{"t": "x"}, {"t": "y"}])");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[1].place.text().ends_with("a.json, item 2"));
}

struct BrokenTable {
  std::string file, content;
  std::vector<std::string> words;
};
void PrintTo(const BrokenTable& item, std::ostream* out) { *out << item.words.front(); }
class TableRefuses : public ::testing::TestWithParam<BrokenTable> {};

TEST_P(TableRefuses, WithThePlaceAndTheRemedy) {
  expect_error(ErrorKind::Data, GetParam().words, [] { rows_of(GetParam().file, GetParam().content); });
}

INSTANTIATE_TEST_SUITE_P(
    Files, TableRefuses,
    ::testing::Values(
        BrokenTable{"a.csv", "a,b\nx,\"y\nz\n", {"a.csv:2, column 3", "never closed", "Close it"}},
        BrokenTable{"a.csv", "a,b\nx,\"y\"z\n", {"a.csv:2, column 6", "after a closing quote", "twice"}},
        BrokenTable{"a.csv", "a,b\n\"1\n2\"3,x\n", {"a.csv:3, column 3", "after a closing quote"}},
        BrokenTable{"a.csv", "a,b\nx,y,z\n", {"a.csv:2", "3 cells", "2 columns (a, b)", "quote the one"}},
        BrokenTable{"a.csv", "a;b\nx,y\n", {"a.csv:2", "holds a semicolon", "separated by commas"}},
        BrokenTable{"a.tsv", "a,b\nx\ty\n", {"a.tsv:2", "holds a comma", ".tsv files by tabs"}},
        BrokenTable{"a.csv", "a,b,a\n", {"a.csv:1", "two columns are called 'a'", "first line must name"}},
        BrokenTable{"a.csv", "", {"is empty", "name the columns"}},
        BrokenTable{"a.tsv", "\n\r\n", {"is empty", "name the columns"}},
        BrokenTable{"a.jsonl", "{\"a\": 1}\n{\"a\": }\n", {"a.jsonl:2", "not valid JSON"}},
        BrokenTable{"a.jsonl", "{\"a\": 1}\n7\n", {"a.jsonl:2", "expected a JSON object"}}));

TEST(Table, AMissingFileIsNamed) {
  expect_error(ErrorKind::Data, {"/no/such/file.csv"}, [] { TableReader("/no/such/file.csv"); });
}

/// Twice the file must not take four times as long: here quoted cells of many lines and of one beside many short rows.
TEST(Table, ReadingIsLinear) {
  const auto seconds = [](int64_t size) {
    std::string content = "a,b\n\"";
    for (int64_t i = 0; i < size; ++i) content += "line \"\"x\"\"\n";
    content += "\",1\n\"";
    for (int64_t i = 0; i < size; ++i) content += "no end \"\"x\"\" ";
    content += "\",1\n";
    for (int64_t i = 0; i < size; ++i) content += "\"some text, quoted\",2\n";
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(rows_of("a.csv", content).size(), static_cast<size_t>(size + 2));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(1000);
  const auto best = [&](int64_t size) { return std::min({seconds(size), seconds(size), seconds(size)}); };
  const double small = best(10'000);
  EXPECT_LT(best(80'000), 8 * 4 * small) << "a quadratic reader would take 64 times " << small << " s";
}

}  // namespace
}  // namespace lockstep::data::testing
