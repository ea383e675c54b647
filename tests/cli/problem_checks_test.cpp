// What the flags ask of a problem that only the rows tell: refused before the first update.
#include "command.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

struct ProblemCase {
  const char* name;
  std::string labels[3];    ///< of three rows, as JSON
  Words flags;
  Words says;
};
void PrintTo(const ProblemCase& bad, std::ostream* out) { *out << bad.name; }

std::string rows_of(const ProblemCase& bad) {
  std::string text;
  for (const std::string& label : bad.labels) text += R"({"text": "How many are there?", "label": )" + label + "}\n";
  return text;
}

class ProblemRefuses : public testing::TestWithParam<ProblemCase> {};

TEST_P(ProblemRefuses, BeforeTheFirstUpdate) {
  const Scratch scratch;
  const std::string rows = scratch.write("rows.jsonl", rows_of(GetParam())).string();
  Words args = {"classify", "--model_name_or_path", (kTinyModels / "bert").string(), "--ignore_mismatched_sizes", "--max_length",
                "24", "--train_file", rows, "--validation_file", rows, "--max_steps", "2", "--output_dir", (scratch / "out").string()};
  args.insert(args.end(), GetParam().flags.begin(), GetParam().flags.end());
  const Ended ended = run(scratch, args);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  for (const std::string& part : GetParam().says) EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  EXPECT_TRUE(lines_of(scratch / "out" / "metrics.jsonl").empty());
}

TEST(BestModel, ThatNoEvaluationChoseIsTheLastWithANote) {
  const Scratch scratch;
  const std::string rows = scratch.write("rows.jsonl", rows_of({"", {"0", "1", "0"}, {}, {}})).string();
  const Ended ended =
      run(scratch, {"classify", "--model_name_or_path", (kTinyModels / "bert").string(), "--ignore_mismatched_sizes", "--max_length", "24",
                    "--train_file", rows, "--validation_file", rows, "--max_steps", "2", "--output_dir", (scratch / "out").string(),
                    "--eval_strategy", "steps", "--eval_steps", "1", "--save_steps", "1", "--eval_delay", "100", "--load_best_model_at_end"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("gave eval_loss to choose by (none was due, or all were NaN), so the last model (update 2) is saved"),
            std::string::npos) << ended.err;
}

const Words kEvaluates = {"--eval_strategy", "steps", "--eval_steps", "1"};
Words evaluating(Words more) {
  more.insert(more.end(), kEvaluates.begin(), kEvaluates.end());
  return more;
}

INSTANTIATE_TEST_SUITE_P(
    Flags, ProblemRefuses,
    testing::Values(
        ProblemCase{"SmoothedTargets", {"0.5", "1.25", "2.5"}, {"--label_smoothing_factor", "0.1"},
                    {"label_smoothing_factor = 0.1 (command line): the labels make this regression"}},
        ProblemCase{"SmoothedSets", {R"(["a"])", R"(["a", "b"])", "[]"}, {"--label_smoothing_factor", "0.1"},
                    {"the labels make this multi_label_classification"}},
        ProblemCase{"UnknownMetric", {"0", "1", "0"}, {"--metric_name", "foo"},
                    {"metric_name = foo (command line): is no metric of single_label_classification with 2 classes. Use some of accuracy"}},
        ProblemCase{"MetricOfAnotherProblem", {"0", "1", "0"}, {"--metric_name", "pearson"}, {"metric_name = pearson"}},
        ProblemCase{"UnknownBest", {"0", "1", "0"}, evaluating({"--metric_for_best_model", "nonsense"}),
                    {"metric_for_best_model = nonsense (command line): the evaluations of this run have no eval_nonsense. Use one of loss"}},
        ProblemCase{"BestOfLossAlone", {"0", "1", "0"}, evaluating({"--metric_for_best_model", "f1", "--prediction_loss_only"}),
                    {"have no eval_f1. Use one of loss, or leave --prediction_loss_only out"}},
        ProblemCase{"BestThatIsNotReported", {"0", "1", "0"},
                    evaluating({"--metric_for_best_model", "f1", "--metric_name", "accuracy"}), {"or name it with --metric_name too"}}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace lockstep::cli
