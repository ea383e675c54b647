// Each example as a user starts it; and the promise: the bits of `lockstep classify`.
#include "program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <memory>

namespace lockstep::library_test {
namespace {

using ExampleJson = nlohmann::json;

const fs::path kBin = LOCKSTEP_BIN_DIR;
const std::string kLockstep = kBin / "lockstep";
const fs::path kData = LOCKSTEP_TEST_DATA;

std::string example(const std::string& name) { return kBin / "examples" / name; }

std::string sentence(std::string text) {
  std::erase_if(text, [](char c) { return c == '"'; });
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return text;
}

/// `count` rows of a split of solution-pairs in the shape of MRPC.
void write_rows(const fs::path& folder, const std::string& split, const std::string& format, size_t count) {
  fs::create_directories(folder);
  std::ifstream source(kData / "solution-pairs" / (split + ".jsonl"));
  std::ofstream file(folder / (split + "." + format));
  const bool is_tsv = format == "tsv";
  if (format != "jsonl") file << (is_tsv ? "sentence1\tsentence2\tlabel\n" : "sentence1,sentence2,label\n");
  std::string line;
  for (size_t i = 0; i < count && std::getline(source, line); ++i) {
    const ExampleJson row = ExampleJson::parse(line);
    const std::string first = sentence(row["question"]), second = sentence(row["solution"]);
    if (format == "jsonl") {
      file << ExampleJson{{"sentence1", first}, {"sentence2", second}, {"label", row["label"]}}.dump() << '\n';
    } else if (is_tsv) {
      file << first << '\t' << second << '\t' << row["label"] << '\n';
    } else {
      file << '"' << first << "\",\"" << second << "\"," << row["label"] << '\n';
    }
  }
}

/// A folder with a tiny bert of two classes and MRPC-like rows in three formats.
class Examples : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>("lockstep-examples-test");
    for (const char* format : {"jsonl", "csv", "tsv"}) {
      write_rows(path() / format, "train", format, 30);
      write_rows(path() / format, "validation", format, 12);
    }
    const ProgramEnded made = run(path(), classify({"--model_name_or_path", kData / "models" / "tiny" / "bert", "--max_steps",
                                                    "1", "--max_length", "48", "--ignore_mismatched_sizes", "--output_dir",
                                                    path() / "model"}));
    ASSERT_EQ(made.exit_code, 0) << made.err;
    // The tokenizer's limit is the model's, as in models that were made together.
    const fs::path config = path() / "model" / "tokenizer_config.json";
    ExampleJson json = ExampleJson::parse(read_file(config));
    json["model_max_length"] = 64;
    std::ofstream(config) << json.dump(1);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static const fs::path& path() { return folder_->path(); }
  static std::string model() { return path() / "model"; }
  static std::string data(const std::string& format = "jsonl") { return path() / format; }
  static std::string output(const std::string& name) { return path() / name; }

  static std::vector<std::string> classify(const std::vector<std::string>& more) {
    std::vector<std::string> words = {kLockstep, "classify", "--dataset_name", data(), "--text_column", "sentence1",
                                      "--text_pair_column", "sentence2", "--disable_tqdm"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// The command that examples/mrpc is the twin of.
  static std::vector<std::string> command(const std::string& name, const std::string& processes) {
    return classify({"--model_name_or_path", model(), "--eval_strategy", "epoch", "--save_strategy", "epoch", "--logging_steps",
                     "10", "--nproc_per_node", processes, "--output_dir", output(name)});
  }
  static std::vector<std::string> mrpc(const std::string& name, const std::string& format = "jsonl") {
    return {example("mrpc"), model(), data(format), output(name)};
  }
  static std::vector<std::string> under_run(const std::string& processes, std::vector<std::string> words) {
    words.insert(words.begin(), {kLockstep, "run", "--nproc_per_node", processes});
    return words;
  }

  static std::string weights(const std::string& name) { return read_file(path() / name / "model.safetensors"); }
  static ExampleJson facts(const std::string& name) { return ExampleJson::parse(read_file(path() / name / "run.json"))["run"]; }
  /// Every number of the evaluations but the times.
  static std::string evaluations(const std::string& name) {
    std::ifstream file(path() / name / "metrics.jsonl");
    std::string text;
    for (std::string line; std::getline(file, line);) {
      const ExampleJson json = ExampleJson::parse(line);
      for (const auto& [key, value] : json.items()) {
        if (key.starts_with("eval_") && !key.ends_with("runtime") && !key.ends_with("second")) text += key + value.dump() + "\n";
      }
    }
    return text;
  }
  static void expect_success(const ProgramEnded& ended) { ASSERT_EQ(ended.exit_code, 0) << ended.err << ended.out; }

 private:
  static std::unique_ptr<TempFolder> folder_;
};
std::unique_ptr<TempFolder> Examples::folder_;

TEST_F(Examples, MrpcAloneHasTheBitsOfTheCommandFromEveryFormat) {
  expect_success(run(path(), command("command1", "1")));
  const std::string want = weights("command1");
  for (const char* format : {"jsonl", "csv", "tsv"}) {
    const std::string name = std::string("alone-") + format;
    const ProgramEnded ended = run(path(), mrpc(name, format));
    expect_success(ended);
    EXPECT_NE(ended.out.find("accuracy 0."), std::string::npos) << ended.out;
    EXPECT_TRUE(weights(name) == want) << format;
    EXPECT_EQ(evaluations(name), evaluations("command1"));
    EXPECT_EQ(facts(name), facts("command1"));
    EXPECT_TRUE(fs::exists(path() / name / "checkpoint-4" / "manifest.json"));
  }
  EXPECT_NE(evaluations("command1"), "");
}

TEST_F(Examples, MrpcInTwoProcessesHasTheBitsOfTheCommand) {
  expect_success(run(path(), command("command2", "2")));
  const std::string want = weights("command2");
  expect_success(run(path(), under_run("2", mrpc("run2"))));
  EXPECT_TRUE(weights("run2") == want);
  EXPECT_EQ(evaluations("run2"), evaluations("command2"));

  // With no more than what torch's env:// needs: rank 0 opens the store.
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Program>> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<Program>(
        path(), mrpc("env2"),
        Variables{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", rank}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}}));
  }
  for (const auto& rank : ranks) expect_success(rank->wait());
  EXPECT_TRUE(weights("env2") == want);
  EXPECT_FALSE(weights("env2") == weights("model"));
}

TEST_F(Examples, OwnLossByHandAndByAutogradAgree) {
  const auto value = [](const ProgramEnded& ended) {
    expect_success(ended);
    return std::stod(ended.out.substr(ended.out.find("focal loss ") + 11));
  };
  const double by_hand = value(run(path(), {example("own_loss"), model(), data(), output("by_hand")}));
  const double autograd = value(run(path(), {example("own_loss_autograd"), model(), data(), output("autograd")}));
  EXPECT_NEAR(by_hand, autograd, 1e-4 * by_hand);
  EXPECT_GT(by_hand, 0);
  EXPECT_EQ(facts("by_hand")["loss"], "focal, gamma 2");
}

TEST_F(Examples, OwnDataComesFromTheProgram) {
  const ProgramEnded alone = run(path(), {example("own_data"), model(), output("sums")});
  expect_success(alone);
  EXPECT_NE(alone.out.find("row 3: "), std::string::npos) << alone.out;
  EXPECT_NE(alone.out.find("recall of wrong sums "), std::string::npos) << alone.out;
  expect_success(run(path(), under_run("2", {example("own_data"), model(), output("sums2")})));
}

TEST_F(Examples, CallbacksSeeEventsAndSteer) {
  const std::string want = R"(step 0: train_begin, 40 updates planned
step 0: epoch_begin
step 2: log, loss above 0
step 2: evaluate, NUMBERS numbers
step 4: epoch_end
step 4: epoch_begin
step 8: epoch_end
step 8: evaluate, NUMBERS numbers
step 8: save
step 8: epoch_begin
step 12: epoch_end
step 12: evaluate, NUMBERS numbers
step 12: save
step 12: train_end, 4 entries in log_history
)";
  for (const auto& words : {std::vector<std::string>{example("callbacks"), model(), data(), output("events")},
                            under_run("1", {example("callbacks"), model(), data(), output("events1")})}) {
    const ProgramEnded ended = run(path(), words);
    expect_success(ended);
    std::string said = ended.out;
    for (size_t at = said.find("evaluate, "); at != std::string::npos; at = said.find("evaluate, ", at + 1)) {
      const size_t begin = at + 10;
      said.replace(begin, said.find(' ', begin) - begin, "NUMBERS");
    }
    EXPECT_EQ(said, want);
  }
}

TEST_F(Examples, CollectivesAloneAndTogether) {
  const ProgramEnded alone = run(path(), {example("collectives")});
  expect_success(alone);
  EXPECT_EQ(alone.out, "rank0 sum 0 of 1, highest 0, gathered 1, from rank 0: 42\n");
  const ProgramEnded three = run(path(), under_run("3", {example("collectives")}));
  expect_success(three);
  EXPECT_NE(three.out.find("rank0 rank1 rank2 sum 3 of 3, highest 2, gathered 6, from rank 0: 42"), std::string::npos) << three.out;
}

TEST_F(Examples, FailuresAreExceptionsWithTheCommandsExitCodes) {
  const ProgramEnded no_master = run(path(), mrpc("none"), {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(no_master.exit_code, 2);
  EXPECT_NE(no_master.err.find("MASTER_ADDR is not set"), std::string::npos) << no_master.err;
  const ProgramEnded no_data = run(path(), {example("mrpc"), model(), "nowhere", output("none")});
  EXPECT_EQ(no_data.exit_code, 3);
  EXPECT_NE(no_data.err.find("nowhere"), std::string::npos) << no_data.err;
}

}  // namespace
}  // namespace lockstep::library_test
