// TrainingArguments: transformers' fields, names and defaults.
#include "tiny_parts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

/// What the table of transformers' fields writes as a default, as on a command line; empty for None and [].
std::string plain_default(std::string text) {
  if (text == "None" || text == "[]") return {};
  if (text.starts_with('\'')) text = text.substr(1, text.size() - 2);
  return text;
}

TEST(TrainingArguments, HasEveryFieldOfTransformersWithItsDefault) {
  std::ifstream table(library_test::kTestData / "flags" / "training_arguments.tsv");
  std::string line;
  std::getline(table, line);
  size_t fields = 0;
  while (std::getline(table, line)) {
    std::istringstream cells(line);
    std::string flag, type, value;
    std::getline(cells, flag, '\t');
    std::getline(cells, type, '\t');
    std::getline(cells, value, '\t');
    const std::string name = flag.substr(2);
    ++fields;
    TrainingArguments arguments;
    EXPECT_NO_THROW(arguments.set(name, plain_default(value).empty() ? "none" : plain_default(value)))
        << name << " = " << value;
  }
  EXPECT_GT(fields, 100U);
}

TEST(TrainingArguments, DefaultsAreTransformersNotTrls) {
  const TrainingArguments arguments;
  EXPECT_EQ(arguments.learning_rate, 5e-5);
  EXPECT_EQ(arguments.logging_steps, 500);
  EXPECT_EQ(arguments.save_strategy, "steps");
  EXPECT_EQ(arguments.eval_strategy, "no");
  EXPECT_EQ(arguments.per_device_train_batch_size, 8);
  EXPECT_EQ(arguments.num_train_epochs, 3);
  EXPECT_EQ(arguments.seed, 42);
  EXPECT_EQ(arguments.bf16, false);
  EXPECT_EQ(arguments.weight_decay, 0);
  EXPECT_EQ(arguments.max_grad_norm, 1);
  EXPECT_EQ(arguments.dataloader_drop_last, false);
  EXPECT_EQ(arguments.ddp_timeout, 1800);
}

TEST(TrainingArguments, FieldsAndTextsAreTheSame) {
  TrainingArguments arguments;
  arguments.set("learning-rate", "2e-5");
  arguments.set("eval_strategy", "epoch");
  arguments.set("dataloader_drop_last", "true");
  EXPECT_EQ(arguments.learning_rate, 2e-5);
  EXPECT_EQ(arguments.eval_strategy, "epoch");
  EXPECT_TRUE(arguments.dataloader_drop_last);
  std::string words[] = {"program", "--learning_rate", "3e-5", "--save_steps=0.5", "--no_remove_unused_columns"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const auto parsed = TrainingArguments::from_command_line(static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(parsed.learning_rate, 3e-5);
  EXPECT_EQ(parsed.save_steps, 0.5);
  EXPECT_FALSE(parsed.remove_unused_columns);
}

TEST(TrainingArguments, OlderNamesAndFieldsWithoutObjectAreNoted) {
  const TempFolder folder("lockstep-library-test");
  TrainerParts parts = library_test::tiny_parts(folder.path() / "out");
  parts.args.evaluation_strategy = "epoch";
  parts.args.warmup_ratio = 0.1;
  parts.args.per_device_eval_batch_size = 64;
  parts.args.dataloader_num_workers = 4;
  const Trainer trainer(std::move(parts));
  std::string notes;
  for (const std::string& note : trainer.notes()) notes += note + "\n";
  for (const char* name : {"evaluation_strategy", "warmup_ratio", "per_device_eval_batch_size", "dataloader_num_workers"}) {
    EXPECT_NE(notes.find(name), std::string::npos) << name << " in\n" << notes;
  }
}

}  // namespace
}  // namespace lockstep
