#include "lockstep/data/classify.h"

#include "data_pipeline/classify_loading.h"

#include <algorithm>

namespace lockstep::data::testing {
namespace {

using Names = std::vector<std::string>;

TEST(Classify, ReadsAFolderOfSplitsAndGuessesItsColumns) {
  const FolderOf folder{{"train.jsonl", R"({"sentence1": "a b", "sentence2": "c", "label": 1, "idx": 0}
{"sentence1": "d", "sentence2": "", "label": 0, "idx": 1}
)"},
                        {"dev.jsonl", R"({"sentence1": "e", "sentence2": "f", "label": 1})"}};
  const ClassifyDataset data = load(folder);
  EXPECT_EQ(data.columns.text, "sentence1");
  EXPECT_EQ(data.columns.pair, "sentence2");
  EXPECT_EQ(data.columns.chosen,
            (Names{"label_column = label", "text_column = sentence1", "text_pair_column = sentence2"}));
  ASSERT_EQ(data.train.size(), 1U);
  ASSERT_EQ(data.validation.size(), 1U);
  EXPECT_TRUE(data.test.empty());
  const LabelledRow& row = data.train[0].rows[0];
  EXPECT_EQ(row.ids, bert().encode_pair("a b", "c").ids);
  EXPECT_EQ(row.type_ids, bert().encode_pair("a b", "c").type_ids);
  EXPECT_EQ(row.labels, std::vector<float>{1});
  EXPECT_EQ(data.train[0].rows[1].source_row, 1);
  EXPECT_EQ(data.train[0].report.num_empty_texts, 1);
  EXPECT_EQ(data.train[0].report.label_counts, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(data.train[0].report.fingerprint.size(), 16U);
  EXPECT_EQ(data.max_length, 512) << "what the tokenizer names";
}

TEST(Classify, CsvTsvAndJsonGiveTheSameRows) {
  const FolderOf json{{"train.jsonl", "{\"text\": \"a, b\", \"label\": \"x\"}\n{\"text\": \"c\", \"label\": \"y\"}\n"}};
  const FolderOf csv{{"train.csv", "text,label\n\"a, b\",x\nc,y\n"}};
  const FolderOf tsv{{"data/train-00.tsv", "text\tlabel\r\na, b\tx\r\nc\ty\r\n"}};
  const FolderOf array{{"train/part.json", R"([{"text": "a, b", "label": "x"}, {"text": "c", "label": "y"}])"}};
  const std::string expected = load(json).train[0].report.fingerprint;
  EXPECT_EQ(load(csv).train[0].report.fingerprint, expected);
  EXPECT_EQ(load(tsv).train[0].report.fingerprint, expected);
  EXPECT_EQ(load(array).train[0].report.fingerprint, expected);
}

TEST(Classify, TheNumberOfThreadsCannotBeSeen) {
  LoadClassify one, four;
  one.options.dataset_name = four.options.dataset_name = LOCKSTEP_TEST_DATA "/solution-pairs";
  one.options.text_column = four.options.text_column = "question";
  one.options.text_pair_column = four.options.text_pair_column = "solution";
  one.num_threads = 1;
  four.num_threads = 4;
  const ClassifyDataset a = load(one), b = load(four);
  ASSERT_EQ(a.train[0].rows.size(), 400U);
  EXPECT_EQ(a.labels.names(), (Names{"right", "wrong"}));
  EXPECT_EQ(a.train[0].report.label_counts, (std::vector<int64_t>{200, 200}));
  EXPECT_EQ(a.train[0].report.fingerprint, b.train[0].report.fingerprint);
}

TEST(Classify, GluesOwnFilesAreRead) {
  const FolderOf mrpc{{"train.tsv", "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA \"b.\tC.\n0\t1\t2\tD\tE\n"}};
  const ClassifyDataset data = load(mrpc, {.options = {.task = "mrpc"}});
  EXPECT_EQ(data.columns.pair, "#2 String");
  EXPECT_EQ(data.labels.names(), (Names{"not_equivalent", "equivalent"}));
  EXPECT_EQ(data.train[0].rows[0].labels, std::vector<float>{1});
  EXPECT_EQ(data.train[0].rows[0].ids, bert().encode_pair("A \"b.", "C.").ids);

  const FolderOf cola{{"train.tsv", "gj04\t1\t\tGood one.\ngj04\t0\t*\tBad one.\n"}, {"test.tsv", "index\tsentence\n0\tWhat.\n"}};
  const ClassifyDataset cola_data = load(cola, {.options = {.task = "cola"}, .needs = {.test = Wanted::Yes}});
  EXPECT_EQ(cola_data.train[0].rows.size(), 2U) << "the file has no header";
  EXPECT_EQ(cola_data.test[0].rows.size(), 1U);
  EXPECT_EQ(cola_data.test[0].report.num_unlabelled, 1);

  const FolderOf qqp{{"train.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n4\t5\t6\tcut off\n7\t8\t9\tc\td\t0\n"}};
  const ClassifyDataset qqp_data = load(qqp, {.options = {.task = "qqp"}});
  EXPECT_EQ(qqp_data.train[0].rows.size(), 2U);
  EXPECT_EQ(qqp_data.train[0].report.num_incomplete, 1) << "Hugging Face leaves such lines out, too";
}

TEST(Classify, MnliHasTwoValidationSplits) {
  const std::string rows = "premise\thypothesis\tlabel\na\tb\tneutral\nc\td\tentailment\ne\tf\tcontradiction\n";
  const FolderOf folder{{"train.tsv", rows}, {"dev_matched.tsv", rows}, {"dev_mismatched.tsv", rows}};
  const ClassifyDataset data = load(folder, {.options = {.task = "mnli"}});
  ASSERT_EQ(data.validation.size(), 2U);
  EXPECT_EQ(data.validation[0].name, "validation_matched");
  EXPECT_EQ(data.validation[1].name, "validation_mismatched");
  EXPECT_EQ(data.validation[1].rows[0].labels, std::vector<float>{1});
}

TEST(Classify, LongRowsAreCutAndCounted) {
  const FolderOf folder{{"train.jsonl", R"({"text": "one two three four five six", "label": 0}
{"text": "one", "label": 1}
)"}};
  const ClassifyDataset data = load(folder, {.options = {.max_length = 5}});
  const SplitReport& report = data.train[0].report;
  EXPECT_EQ(data.train[0].rows[0].ids.size(), 5U);
  EXPECT_EQ(data.train[0].rows[0].ids.back(), bert().token_to_id("[SEP]"));
  EXPECT_EQ(report.num_truncated, 1);
  EXPECT_EQ(report.num_tokens_cut, 3);
  EXPECT_EQ(report.longest, 5);
  EXPECT_EQ(report.shortest, 3);
  EXPECT_EQ(load(folder, {.options = {.max_seq_length = 5}}).max_length, 5);
  const ClassifyDataset limited = load(folder, {.options = {.max_length = 100}, .needs = {.max_positions = 4}});
  EXPECT_EQ(limited.max_length, 4);
  EXPECT_EQ(limited.notes.size(), 1U) << "that the wish is more than the model takes";
}

TEST(Classify, RowsWithTheSameKeyTwiceAreCounted) {
  const FolderOf folder{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 0, \"label\": 1}\n"}};
  const auto dataset = load(folder);
  EXPECT_EQ(dataset.train[0].report.num_repeated_keys, 1);
  EXPECT_TRUE(dataset.train[0].report.first_repeated_key.ends_with("train.jsonl:2"));
  EXPECT_EQ(dataset.train[0].rows[1].labels, std::vector<float>{1}) << "the last value holds";
  EXPECT_NE(fmt::format("{}", fmt::join(report_lines(dataset), "\n")).find("1 row with the same key twice"), std::string::npos);
}

TEST(Classify, OnlyTheFirstRowsIfAskedFor) {
  const FolderOf folder{{"train.csv", "text,label\na,0\nb,1\nc,0\n"}, {"validation.csv", "text,label\na,0\nb,1\n"}};
  const ClassifyDataset data = load(folder, {.options = {.max_train_samples = 2, .max_eval_samples = 1}});
  EXPECT_EQ(data.train[0].rows.size(), 2U);
  EXPECT_EQ(data.train[0].report.num_left_out, 1);
  EXPECT_EQ(data.validation[0].rows.size(), 1U);
}

TEST(Classify, PredictionNeedsNoLabels) {
  const FolderOf folder{{"train.csv", "text,label\na,0\nb,1\n"}, {"test.csv", "text\nc\n"}};
  const ClassifyDataset data = load(folder, {.needs = {.test = Wanted::Yes}});
  EXPECT_TRUE(data.test[0].rows[0].labels.empty());
  EXPECT_EQ(data.test[0].report.num_unlabelled, 1);
  LoadClassify only{.options = {}, .needs = {.train = Wanted::No, .validation = Wanted::No, .test = Wanted::Yes}};
  only.needs.label_names = {"neg", "pos"};
  EXPECT_EQ(load(folder, only).labels.names(), (Names{"neg", "pos"}));
}

TEST(Classify, EvaluatedRowsNameTheClassesThatTheModelDoesNot) {
  const FolderOf folder{{"validation.csv", "text,label\na,yes\nb,no\n"}};
  LoadClassify only{.options = {}, .needs = {.train = Wanted::No, .validation = Wanted::Yes}};
  only.needs.label_names = {"LABEL_0", "LABEL_1"};
  only.needs.num_labels = 2;
  const ClassifyDataset data = load(folder, only);
  EXPECT_EQ(data.labels.names(), (Names{"no", "yes"}));
  EXPECT_EQ(data.validation[0].rows[0].labels, std::vector<float>{1});
  EXPECT_NE(fmt::format("{}", fmt::join(report_lines(data), "\n")).find("0 = no, 1 = yes"), std::string::npos);
}

TEST(Classify, TheReportSaysWhatHappened) {
  const FolderOf folder{{"train.csv", "text,label\none two three four,no\nb,yes\n"}};
  const auto lines = report_lines(load(folder, {.options = {.max_length = 4}}));
  const auto has = [&](const std::string& words) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(words) != std::string::npos; });
  };
  for (const char* words : {"single_label_classification, 2 classes", "text text, label label", "2 rows of ",
                            "1 row (50.0 %) cut to 4 tokens: 2 tokens lost", "labels: no: 1 (50.0 %), yes: 1 (50.0 %)",
                            "label 0 (no)", "[CLS] one two [SEP]"}) {
    EXPECT_TRUE(has(words)) << words << "\n" << fmt::format("{}", fmt::join(lines, "\n"));
  }
}

struct BadData {
  std::vector<std::pair<std::string, std::string>> files;
  LoadClassify with;
  std::vector<std::string> words;
  ErrorKind kind = ErrorKind::Data;
};
void PrintTo(const BadData& item, std::ostream* out) { *out << item.words.front(); }
class ClassifyRefuses : public ::testing::TestWithParam<BadData> {};

TEST_P(ClassifyRefuses, WithThePlaceAndTheRemedy) {
  const FolderOf folder(GetParam().files);
  expect_error(GetParam().kind, GetParam().words, [&] { load(folder, GetParam().with); });
}

constexpr const char* kGood = "text,label\na,0\nb,1\n";

INSTANTIATE_TEST_SUITE_P(
    Data, ClassifyRefuses,
    ::testing::Values(
        BadData{{}, {}, {"belongs to the split 'train'", "found: nothing", "--train_file"}},
        BadData{{{"rows.parquet", "x"}}, {}, {"belongs to the split 'train'", "rows.parquet, which are not read"}},
        BadData{{{"test.csv", kGood}}, {}, {"belongs to the split 'train'", "found: test.csv"}},
        BadData{{{"train.csv", kGood}, {"train.jsonl", "{}"}}, {}, {"in two formats", "Remove one"}},
        BadData{{{"train.csv", kGood}}, {.needs = {.validation = Wanted::Yes}}, {"split 'validation'", "validation.jsonl"}},
        BadData{{{"train.csv", kGood}}, {.options = {.dataset_validation_split = "dev2"}}, {"split 'dev2'"}},
        BadData{{{"train.csv", "text,label\n"}}, {}, {"'train' has no rows"}},
        BadData{{{"train.csv", "text,stars\na,1\n"}}, {}, {"train.csv:2", "no column called label", "text, stars", "--label_column"}},
        BadData{{{"train.csv", "text;stars\na;1\n"}}, {}, {"no column called label", "columns are: text;stars. Its first line holds a semicolon: .csv files are separated by commas"}},
        BadData{{{"train.csv", kGood}}, {.options = {.label_column = "star"}}, {"no column 'star' (--label_column)", "text, label"}},
        BadData{{{"train.csv", kGood}}, {.options = {.text_column = "body"}}, {"no column 'body' (--text_column)"}},
        BadData{{{"train.csv", kGood}}, {.options = {.text_column = "text", .text_pair_column = "x"}}, {"no column 'x' (--text_pair_column)"}},
        BadData{{{"train.csv", "title,body,label\na,b,0\n"}}, {}, {"several columns could be the text (title, body)", "--text_column"}},
        BadData{{{"train.csv", "sentence1,sentence2,more,label\na,b,c,0\n"}}, {}, {"several columns could be the text"}},
        BadData{{{"train.csv", "number,label\n1,0\n"}}, {}, {"no column holds a text", "--text_column"}},
        BadData{{{"train.csv", "text,label,labels\na,0,1\n"}}, {}, {"both label and labels"}},
        BadData{{{"train.csv", kGood}}, {.options = {.task = "mrpc"}}, {"--task mrpc needs a column 'sentence1' or '#1 String'", "leave out --task"}},
        BadData{{{"train.csv", kGood}}, {.options = {.text_column = "label"}}, {"both a text and the label"}, ErrorKind::Usage},
        BadData{{{"train.csv", kGood}}, {.options = {.text_column = "text", .text_pair_column = "text"}}, {"are both 'text'"}, ErrorKind::Usage},
        BadData{{{"train.csv", kGood}}, {.options = {.text_pair_column = "text"}}, {"needs --text_column"}, ErrorKind::Usage},
        BadData{{{"train.csv", kGood}}, {.options = {.max_length = 2}}, {"--max_length 2 leaves no room", "2 tokens of a row are special"}, ErrorKind::Usage},
        BadData{{{"train.jsonl", "{\"text\": 5, \"label\": 0}\n"}}, {.options = {.text_column = "text"}}, {"train.jsonl:1", "5 is an integer, not a text"}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"label\": 0}\n"}}, {}, {"train.jsonl:2", "there is no column \"text\"", "has: label"}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": null, \"label\": 0}\n"}}, {}, {"train.jsonl:2", "\"text\": the value is null"}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": {\"a\": 1}, \"label\": 0}\n"}}, {}, {"train.jsonl:2", "\"text\": an object or a list"}},
        BadData{{{"train.jsonl", "{\"text\": null, \"label\": 0}\n"}}, {}, {"train.jsonl:1", "no column holds a text (text: null)"}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": null}\n"}}, {}, {"train.jsonl:2", "the label is null"}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": {}}\n"}}, {}, {"train.jsonl:2", "the label is an object"}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\"}\n"}}, {}, {"train.jsonl:2", "there is no label"}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": null}\n"}}, {}, {"holds no label", "train.jsonl:1: the label is null"}},
        BadData{{{"train.tsv", "label\ttext\n0\ta\n1\n"}}, {}, {"train.tsv:3", "there is no text (the line has 1 cells, the file 2 columns)"}},
        BadData{{{"train.csv", kGood}, {"validation.csv", "text,label\na,2\n"}}, {}, {"validation.csv:2", "2 is none of the 2 classes (0, 1)"}},
        BadData{{{"train.csv", kGood}, {"validation.csv", "text,label\na,\nb,1\n"}}, {}, {"validation.csv:2", "there is no label (rows without a label: 1 of 2)"}},
        BadData{{{"train.csv", kGood}, {"validation.csv", "body,label\na,1\n"}}, {}, {"validation.csv:2", "there is no column \"text\""}},
        BadData{{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"\\ud800\", \"label\": 1}\n"}}, {}, {"train.jsonl:2"}},
        BadData{{{"train.csv", "text,label\na\xFF,0\n"}}, {}, {"train.csv:2", "not valid UTF-8"}},
        BadData{{{"train.csv", kGood}}, {.needs = {.vocab_size = 50}}, {"train.csv:2", "outside the model's vocabulary (vocab_size = 50)"}}));

TEST(Classify, ARowWithoutATokenIsRefused) {
  const FolderOf folder{{"train.jsonl", "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"\", \"label\": 1}\n"}};
  LoadClassify with;
  with.tokenizer = &tiny_tokenizer();  // adds no special tokens
  expect_error(ErrorKind::Data, {"train.jsonl:2", "has no token"}, [&] { load(folder, with); });
}

TEST(Classify, AFileGivenByAFlagMustBeOne) {
  LoadClassify with;
  with.options.train_file = "/no/such/train.csv";
  expect_error(ErrorKind::Data, {"--train_file /no/such/train.csv", "neither a file nor a folder"}, [&] { load(with); });
  with.options.train_file = LOCKSTEP_TEST_DATA "/gsm8k";
  expect_error(ErrorKind::Data, {"is a folder", "--dataset_name"}, [&] { load(with); });
  with.options.train_file = LOCKSTEP_TEST_DATA "/gsm8k/README.md";
  expect_error(ErrorKind::Data, {".md files are not read"}, [&] { load(with); });
  with.options.train_file.reset();
  with.options.dataset_name = "glue/mrpc";
  expect_error(ErrorKind::Data, {"--dataset_name glue/mrpc", "not fetched from the Hugging Face Hub"}, [&] { load(with); });
  with.options.dataset_name.reset();
  expect_error(ErrorKind::Usage, {"no data to train on", "--train_file"}, [&] { load(with); });
}

}  // namespace
}  // namespace lockstep::data::testing
