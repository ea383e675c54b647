#include "lockstep/data/label_set.h"

#include "data_pipeline/loading.h"

namespace lockstep::data::testing {
namespace {

using Names = std::vector<std::string>;
using Numbers = std::vector<float>;

LabelColumn column(std::vector<Cell> values) {
  LabelColumn result{.name = "label", .cells = {}};
  const auto file = std::make_shared<const std::string>("train.csv");
  for (Cell& value : values) {
    result.cells.push_back({std::move(value), {file, static_cast<int64_t>(result.cells.size()) + 2, false}});
  }
  return result;
}

LabelColumn texts(const Names& values) {
  LabelColumn result = column({values.begin(), values.end()});
  result.type_texts();
  return result;
}

Cell whole(int64_t value) { return value; }
Cell list(std::vector<Scalar> items) { return ScalarList(std::move(items)); }

LabelSet find(const LabelColumn& training, ClassifyDataOptions options = {}, const Names& model_names = {}) {
  return find_labels(training, options, options.task ? find_glue_task(*options.task) : nullptr, model_names);
}

Numbers numbers(const LabelColumn& labels, size_t row, const LabelSet& set) {
  return to_numbers(labels.cells[row], set, labels.name, Unlabelled::Refused);
}

TEST(Labels, TextsAreSortedByTheirCharacters) {
  const auto labels = texts({"wrong", "right", "Odd", "right"});
  const LabelSet set = find(labels);
  EXPECT_EQ(set.problem, Problem::SingleLabel);
  EXPECT_EQ(set.names(), (Names{"Odd", "right", "wrong"}));
  EXPECT_EQ(set.num_labels, 3);
  EXPECT_EQ(numbers(labels, 0, set), Numbers{2});
  EXPECT_EQ(numbers(labels, 3, set), Numbers{1});
}

TEST(Labels, WholeNumbersAreSortedByTheirValues) {
  const auto labels = texts({"10", "2", "0", "2"});
  const LabelSet set = find(labels);
  EXPECT_EQ(set.names(), (Names{"0", "2", "10"}));
  EXPECT_EQ(numbers(labels, 0, set), Numbers{2});
}

TEST(Labels, BooleansAreClasses) {
  EXPECT_EQ(find(texts({"True", "False"})).names(), (Names{"False", "True"}));
  EXPECT_EQ(find(column({true, false})).names(), (Names{"False", "True"}));
}

TEST(Labels, FractionsAreRegression) {
  const auto labels = texts({"1", "2.5"});
  const LabelSet set = find(labels);
  EXPECT_EQ(set.problem, Problem::Regression);
  EXPECT_EQ(set.num_labels, 1);
  EXPECT_TRUE(set.names().empty());
  EXPECT_EQ(numbers(labels, 1, set), Numbers{2.5});
  EXPECT_EQ(find(column({1.0, 0.0})).problem, Problem::Regression) << "as run_classification.py: the type decides";
}

TEST(Labels, TheFractionAmongWholeNumbersIsNoted) {
  const auto note = [](const LabelColumn& labels, const ClassifyDataOptions& options = {}) {
    const LabelSet set = find(labels, options);
    EXPECT_EQ(set.problem, Problem::Regression);
    return set.notes.empty() ? std::string() : set.notes.front();
  };
  for (const LabelColumn& labels : {column({whole(0), whole(1), 1.0}), texts({"0", "1", "1.0"})}) {
    EXPECT_NE(note(labels).find("that of train.csv:4 is 1.0. For classes"), std::string::npos) << note(labels);
  }
  EXPECT_NE(note(texts({"0", "12345678901234567890123"})).find("train.csv:3 is 1.2345678901234568e+22"), std::string::npos);
  EXPECT_EQ(note(column({1.0, 2.5})), "");
  EXPECT_EQ(note(texts({"1.5", "2.0"})), "");
  EXPECT_EQ(note(texts({"1", "2.5"}), {.problem_type = "regression"}), "");
}

TEST(Labels, TheProblemTypeOverrides) {
  const auto ints = texts({"1", "3"});
  const LabelSet regression = find(ints, {.problem_type = "regression"});
  EXPECT_EQ(numbers(ints, 1, regression), Numbers{3});
  const auto reals = column({1.0, 0.0});
  EXPECT_EQ(find(reals, {.problem_type = "single_label_classification"}).names(), (Names{"0", "1"}));
  const auto lists = column({list({0.5, 2.0}), list({1.0, int64_t{3}})});
  const LabelSet two = find(lists, {.problem_type = "regression"});
  EXPECT_EQ(two.num_labels, 2);
  EXPECT_EQ(numbers(lists, 1, two), (Numbers{1, 3}));
}

TEST(Labels, ListsAreSeveralClassesAtOnce) {
  const auto labels = column({list({"b"}), list({}), list({"a", "b"})});
  const LabelSet set = find(labels);
  EXPECT_EQ(set.problem, Problem::MultiLabel);
  EXPECT_FALSE(set.is_indicator);
  EXPECT_EQ(set.names(), (Names{"a", "b"}));
  EXPECT_EQ(numbers(labels, 0, set), (Numbers{0, 1}));
  EXPECT_EQ(numbers(labels, 1, set), (Numbers{0, 0}));
  EXPECT_EQ(numbers(labels, 2, set), (Numbers{1, 1}));
}

TEST(Labels, ListsOfZerosAndOnesAreOnePerClass) {
  const auto labels = column({list({1.0, 0.0, 0.0}), list({0.0, 1.0, 1.0})});
  const LabelSet set = find(labels);
  EXPECT_TRUE(set.is_indicator);
  EXPECT_EQ(set.num_labels, 3);
  EXPECT_EQ(numbers(labels, 1, set), (Numbers{0, 1, 1}));
  EXPECT_EQ(set.notes.size(), 1U);
  EXPECT_TRUE(find(column({list({int64_t{0}, int64_t{0}, int64_t{1}}), list({int64_t{1}, int64_t{0}, int64_t{1}})})).is_indicator)
      << "a value that repeats is no name of a class";
  EXPECT_FALSE(find(column({list({int64_t{0}}), list({int64_t{1}, int64_t{0}})})).is_indicator);
}

TEST(Labels, ATaskHasItsOwnOrder) {
  const auto ints = texts({"1", "0", "1"});
  const LabelSet set = find(ints, {.task = "rte"});
  EXPECT_EQ(set.names(), (Names{"entailment", "not_entailment"}));
  EXPECT_EQ(numbers(ints, 0, set), Numbers{1});
  const auto names = texts({"not_entailment", "entailment"});
  EXPECT_EQ(numbers(names, 0, find(names, {.task = "rte"})), Numbers{1});
  EXPECT_EQ(find(texts({"5.0", "1.25"}), {.task = "stsb"}).problem, Problem::Regression);
}

TEST(Labels, OtherNamesThanTheModelsAreTold) {
  const LabelSet set = find(texts({"bad", "good"}), {}, {"no", "yes"});
  EXPECT_EQ(set.names(), (Names{"bad", "good"}));
  ASSERT_EQ(set.notes.size(), 1U);
  EXPECT_EQ(set.notes[0], "the model was trained on classes of other names; its head goes on from them in this order: bad was no, "
                          "good was yes");
  const LabelSet more = find(texts({"bad", "good"}), {}, {"no", "yes", "maybe"});
  ASSERT_EQ(more.notes.size(), 1U);
  EXPECT_EQ(more.notes[0], "the model was trained on 3 other classes (no, yes, maybe); these are 2");
  EXPECT_TRUE(find(texts({"a", "b"}), {}, {"LABEL_0", "LABEL_1"}).notes.empty()) << "nobody had named them";
}

TEST(Labels, TextsThatLookLikeListsAreClassesOnlyOnRequest) {
  const std::initializer_list<std::string> lists = {"[1, 0]", "['a', 'b']", "[]"};
  for (const ClassifyDataOptions& options : {ClassifyDataOptions{}, {.problem_type = "multi_label_classification"}}) {
    try {
      find(texts(lists), options);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_NE(std::string(error.what()).find("'[1, 0]' is a text that looks like a list. For several classes"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(find(texts(lists), {.problem_type = "single_label_classification"}).num_labels, 3);
  EXPECT_EQ(find(texts({"[spam]", "ham"})).num_labels, 2) << "not all look like lists";
}

TEST(Labels, TheModelsOrderHoldsIfTheNamesAreTheSame) {
  const auto labels = texts({"a", "b"});
  const LabelSet set = find(labels, {}, {"b", "a"});
  EXPECT_EQ(set.names(), (Names{"b", "a"}));
  EXPECT_EQ(numbers(labels, 0, set), Numbers{1});
  EXPECT_EQ(set.notes.size(), 1U);
  EXPECT_EQ(find(labels, {}, {"LABEL_0", "LABEL_1"}).names(), (Names{"a", "b"}));
  // Numbers in the rows are the task's, whatever the order of the model.
  const auto ints = texts({"0", "1"});
  EXPECT_EQ(numbers(ints, 0, find(ints, {.task = "rte"}, {"not_entailment", "entailment"})), Numbers{1});
}

TEST(Labels, WithoutTrainingRowsTheModelSays) {
  const LabelSet set = labels_of_model({}, nullptr, Names{"neg", "pos"}, "");
  EXPECT_EQ(numbers(texts({"pos"}), 0, set), Numbers{1});
  EXPECT_EQ(numbers(texts({"1"}), 0, set), Numbers{1});
  EXPECT_EQ(labels_of_model({}, nullptr, Names{"LABEL_0"}, "").problem, Problem::Regression);
  const LabelSet mrpc = labels_of_model({}, find_glue_task("mrpc"), Names{"LABEL_0", "LABEL_1"}, "");
  EXPECT_EQ(numbers(texts({"equivalent"}), 0, mrpc), Numbers{1});
  expect_error(ErrorKind::Data, {"names no labels"}, [] { labels_of_model({}, nullptr, {}, ""); });
  expect_error(ErrorKind::Data, {"3 classes", "--task mrpc has 2"},
               [] { labels_of_model({}, find_glue_task("mrpc"), Names{"a", "b", "c"}, ""); });
}

TEST(Labels, RowsNameTheClassesThatTheModelDoesNot) {
  const Names placeholders = {"LABEL_0", "LABEL_1"};
  const ModelLabels model{.names = placeholders, .num_labels = 2, .problem = ""};
  const auto rows = texts({"yes", "no", "yes"});
  const LabelSet set = labels_without_training({}, nullptr, model, &rows);
  EXPECT_EQ(set.names(), (Names{"no", "yes"})) << "as find_labels() orders them";
  EXPECT_EQ(numbers(rows, 0, set), Numbers{1});
  ASSERT_EQ(set.notes.size(), 1U);
  EXPECT_NE(set.notes[0].find("0 = no, 1 = yes"), std::string::npos) << set.notes[0];

  // What the model's own names or numbers are needs no guess.
  for (const Names& known : {Names{"1", "1", "0"}, Names{"LABEL_1", "LABEL_0"}, Names{"1"}}) {
    const auto labels = texts(known);
    const LabelSet same = labels_without_training({}, nullptr, model, &labels);
    EXPECT_EQ(same.names(), placeholders);
    EXPECT_TRUE(same.notes.empty());
    EXPECT_EQ(numbers(labels, 0, same), Numbers{1});
  }
  EXPECT_EQ(labels_without_training({}, nullptr, model, nullptr).names(), placeholders);
  const auto equivalent = texts({"equivalent"});
  EXPECT_EQ(numbers(equivalent, 0, labels_without_training({}, find_glue_task("mrpc"), model, &equivalent)), Numbers{1});
  expect_error(ErrorKind::Data, {"3 classes (a, b, c)", "the model has 2", "id2label"}, [&] {
    const auto three = texts({"a", "b", "c"});
    labels_without_training({}, nullptr, model, &three);
  });
}

TEST(Labels, ListsOfZerosAndOnesAreOnePerClassWithoutTrainingToo) {
  const Names named = {"sad", "glad", "mad"};
  const auto rows = column({list({1.0, 0.0, 0.0}), list({0.0, 1.0, 1.0})});
  const LabelSet set =
      labels_without_training({}, nullptr, {.names = named, .num_labels = 3, .problem = "multi_label_classification"}, &rows);
  EXPECT_EQ(numbers(rows, 1, set), (Numbers{0, 1, 1}));
  EXPECT_EQ(set.names(), named);
}

TEST(Labels, MissingOnesAreAllowedForPredictionOnly) {
  const LabelSet set = find(texts({"a", "b"}));
  for (const Cell& missing : {Cell(), whole(-1), Cell(std::string("-1"))}) {
    const LabelColumn labels = column({missing});
    EXPECT_TRUE(to_numbers(labels.cells[0], set, "label", Unlabelled::Allowed).empty());
    expect_error(ErrorKind::Data, {"train.csv:2", "column \"label\"", "can only be predicted for"},
                 [&] { to_numbers(labels.cells[0], set, "label", Unlabelled::Refused); });
  }
}

struct BadLabels {
  LabelColumn labels;
  ClassifyDataOptions options;
  std::vector<std::string> words;
};
void PrintTo(const BadLabels& item, std::ostream* out) { *out << item.words.back(); }
class LabelsRefuse : public ::testing::TestWithParam<BadLabels> {};

TEST_P(LabelsRefuse, WithThePlaceAndTheRemedy) {
  expect_error(ErrorKind::Data, GetParam().words, [] { find(GetParam().labels, GetParam().options); });
}

INSTANTIATE_TEST_SUITE_P(
    Columns, LabelsRefuse,
    ::testing::Values(
        BadLabels{texts({"a", "a"}), {}, {"single label (a)", "--label_column"}},
        BadLabels{texts({"a", "", "b"}), {}, {"train.csv:3", "there is no label", "remove the row"}},
        BadLabels{texts({"", ""}), {}, {"holds no label", "--label_column"}},
        BadLabels{column({}), {}, {"holds no label"}},
        BadLabels{column({list({}), list({})}), {}, {"no training row has any class", "--label_column"}},
        BadLabels{column({whole(1), std::string("x")}), {}, {"train.csv:3", "'x' is a text, but the label of train.csv:2 is 1"}},
        BadLabels{column({whole(0), whole(1), true}), {}, {"train.csv:4", "true is a boolean, but the label of train.csv:2 is 0"}},
        BadLabels{column({false, whole(1)}), {}, {"train.csv:3", "1 is an integer, but the label of train.csv:2 is false"}},
        BadLabels{column({std::string("x"), list({"y"})}), {}, {"train.csv:3", "[y] is a list", "--problem_type"}},
        BadLabels{column({list({"y"}), std::string("x")}), {}, {"train.csv:3", "'x' is a text", "multi_label"}},
        BadLabels{texts({"0", "-1", "1"}), {}, {"train.csv:3", "the label -1 means none (rows without a label: 1 of 3)", "test split"}},
        BadLabels{texts({"a", "", "b", ""}), {}, {"train.csv:3", "there is no label (rows without a label: 2 of 4)"}},
        BadLabels{texts({"1.5", "", "2.5", ""}), {}, {"train.csv:3", "there is no label (rows without a label: 2 of 4)"}},
        BadLabels{column({list({"a"}), Cell(), list({"b"}), Cell()}), {}, {"train.csv:3", "no label (rows without a label: 2 of 4)"}},
        BadLabels{column({list({1.0, 0.0}), Cell(), list({0.0, 1.0})}), {}, {"train.csv:3", "no label (rows without a label: 1 of 3)"}},
        BadLabels{column({list({"-1"}), list({"a", "b"})}), {}, {"train.csv:2", "means none (rows without a label: 1 of 2)"}},
        BadLabels{texts({"0", "1", "", "-1"}), {.task = "mrpc"}, {"train.csv:4", "no label (rows without a label: 2 of 4)"}},
        BadLabels{column({1.5, 2.0}), {.problem_type = "single_label_classification"}, {"train.csv:2", "1.5 is no class"}},
        BadLabels{texts({"a", "1.5"}), {.problem_type = "regression"}, {"train.csv:2", "'a' is not a finite number"}},
        BadLabels{column({1.5, 1e39}), {}, {"train.csv:3", "1e+39 is beyond the range of float32", "Scale the labels"}},
        BadLabels{column({list({1.0}), list({1.0, 2.0})}), {.problem_type = "regression"},
                  {"train.csv:3", "2 targets where the first row has 1"}},
        BadLabels{texts({"0", "2"}), {.task = "mrpc"}, {"train.csv:3", "none of the 2 classes (not_equivalent, equivalent)"}},
        BadLabels{texts({"yes", "no"}), {.task = "mrpc"}, {"train.csv:2", "'yes' is none of"}},
        BadLabels{texts({"good", "bad"}), {.task = "stsb"}, {"train.csv:2", "'good' is not a finite number"}}));

TEST(Labels, AnUnknownOneInAnotherSplitIsNamed) {
  const LabelSet set = find(texts({"a", "b"}));
  const auto validation = texts({"c"});
  expect_error(ErrorKind::Data, {"train.csv:2", "'c' is none of the 2 classes (a, b)", "train on rows"},
               [&] { numbers(validation, 0, set); });
  const LabelSet indicator = find(column({list({1.0, 0.0}), list({0.0, 0.0})}));
  expect_error(ErrorKind::Data, {"a list of 3 where the training rows have 2"},
               [&] { numbers(column({list({1.0, 0.0, 1.0})}), 0, indicator); });
  expect_error(ErrorKind::Data, {"neither 0 nor 1"}, [&] { numbers(column({list({1.0, 0.5})}), 0, indicator); });
}

TEST(GlueTasks, HaveTheProblemTypeThatTheOptionsCheck) {
  ASSERT_EQ(glue_tasks().size(), 9U);
  for (const GlueTask& task : glue_tasks()) {
    EXPECT_EQ(name(task.problem()), glue_problem_type(std::string(task.name))) << task.name;
    EXPECT_EQ(find_glue_task(task.name), &task);
  }
  EXPECT_EQ(find_glue_task("squad"), nullptr);
}

}  // namespace
}  // namespace lockstep::data::testing
