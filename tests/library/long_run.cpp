// A user's program that trains until somebody ends it: MODEL DATASET and TrainingArguments' flags.
#include <lockstep/lockstep.h>

#include <iostream>
#include <vector>

int main(int argc, char** argv) try {
  std::vector<char*> flags = {argv[0]};
  flags.insert(flags.end(), argv + 3, argv + argc);
  const auto rows = lockstep::load_dataset(argv[2])["train"].take(24);
  const auto tokenizer = lockstep::Tokenizer::from_pretrained(argv[1]);
  lockstep::Trainer trainer(
      {.model = lockstep::SequenceClassifier::from_pretrained(argv[1], {.num_labels = 2, .ignore_mismatched_sizes = true}),
       .args = lockstep::TrainingArguments::from_command_line(static_cast<int>(flags.size()), flags.data()),
       .train_dataset = rows.map(tokenizer, {.text = "question", .text_pair = "solution", .truncation = true, .max_length = 40})});
  trainer.train();
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
