// What is said of the trained model is true of the files it was saved in.
#include "command.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::cli {
namespace {

nlohmann::json evaluated(const fs::path& output) {
  nlohmann::json results = nlohmann::json::parse(read_file(output / "eval_results.json"));
  for (const char* name : {"eval_runtime", "eval_samples_per_second"}) results.erase(name);
  return results;
}

std::vector<std::string> judging(const Scratch& scratch, const fs::path& model, const std::string& output,
                                 const std::vector<std::string>& more) {
  const std::string rows = (kTestData / "solution-pairs" / "validation.jsonl").string();
  std::vector<std::string> args = {"classify", "--model_name_or_path", model.string(), "--validation_file", rows, "--test_file", rows,
                                   "--text_column", "question", "--text_pair_column", "solution", "--max_length", "48",
                                   "--max_eval_samples", "23", "--max_predict_samples", "9", "--output_dir", (scratch / output).string()};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class SavedModel : public testing::TestWithParam<const char*> {};

TEST_P(SavedModel, GivesTheNumbersThatWereToldOfIt) {
  const Scratch scratch;
  const Ended trained = run(scratch, judging(scratch, kTinyModels / "bert", "out",
                                             {"--train_file", (kTestData / "solution-pairs" / "train.jsonl").string(), "--max_steps", "4",
                                              "--learning_rate", "1e-2", "--ignore_mismatched_sizes", "--eval_strategy", "steps",
                                              "--eval_steps", "2", "--dtype", GetParam()}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.err.find(std::string("the saved model (update 4, in ") + GetParam() + "): eval_loss"), std::string::npos)
      << trained.err;
  const Ended read = run(scratch, judging(scratch, scratch / "out", "read", {}));
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(evaluated(scratch / "out"), evaluated(scratch / "read"));
  EXPECT_EQ(read_file(scratch / "out" / "predictions.jsonl"), read_file(scratch / "read" / "predictions.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SavedModel, testing::Values("bfloat16", "float16"), [](const auto& dtype) { return std::string(dtype.param); });

}  // namespace
}  // namespace lockstep::cli
