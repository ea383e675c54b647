#include <lockstep/lockstep.h>

#include <iostream>

int main(int, char** argv) try {
  const auto tokenizer = lockstep::Tokenizer::from_pretrained(argv[1]);
  const auto rows = lockstep::load_dataset(argv[2])["train"].take(20).map(
      tokenizer, {.text = "question", .text_pair = "solution", .truncation = true, .max_length = 48});
  lockstep::TrainingArguments args;
  args.output_dir = argv[3];
  args.max_steps = 2;
  args.save_strategy = "no";
  lockstep::Trainer trainer(
      {.model = lockstep::SequenceClassifier::from_pretrained(argv[1], {.num_labels = 2, .ignore_mismatched_sizes = true}),
       .args = args,
       .train_dataset = rows});
  const auto result = trainer.train();
  if (lockstep::distributed::rank() == 0) {
    std::cout << "trained " << result.global_step << " updates as rank 0 of " << lockstep::distributed::world_size() << std::endl;
  }
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
