// Rows that come from the program itself instead of from files: is the sum right? And metrics of one's own.
//   ./own_data MODEL OUTPUT
#include <lockstep/lockstep.h>

#include <iostream>

namespace {

/// "12 + 30" and "42": every third answer is wrong by one. Any source does: a database, a socket, a generator.
lockstep::Dataset sums(int from, int to, const std::string& name) {
  int next = from;
  return lockstep::Dataset::from_generator(
      [next, to]() mutable -> std::optional<lockstep::Row> {
        if (next == to) return std::nullopt;
        const int a = next * 37 % 50, b = next * 11 % 40;
        const bool right = next++ % 3 != 0;
        return lockstep::Row{{"question", std::to_string(a) + " + " + std::to_string(b)},
                             {"answer", std::to_string(a + b + (right ? 0 : 1))},
                             {"label", std::string(right ? "right" : "wrong")}};
      },
      name);
}

/// The share of wrong sums that were found. Columns are the classes in the order of id2label.
lockstep::Metrics recall_of_wrong(const lockstep::EvalPrediction& rows) {
  double wrong = 0, found = 0;
  for (size_t row = 0; row < static_cast<size_t>(rows.num_rows); ++row) {
    if (rows.label_ids[row] != 1) continue;
    ++wrong;
    found += rows.predictions[2 * row + 1] > rows.predictions[2 * row] ? 1 : 0;
  }
  return {{"recall_of_wrong", wrong > 0 ? found / wrong : 0}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) throw lockstep::Error(lockstep::ErrorKind::Usage, "own_data MODEL OUTPUT");
  const auto tokenizer = lockstep::Tokenizer::from_pretrained(argv[1]);
  const lockstep::TokenizeOptions columns{.text = "question", .text_pair = "answer", .truncation = true, .max_length = 32};

  lockstep::TrainingArguments args;
  args.output_dir = argv[2];
  args.learning_rate = 1e-3;
  args.num_train_epochs = 2;
  args.save_strategy = "no";

  lockstep::Trainer trainer({.model = lockstep::SequenceClassifier::from_pretrained(
                                 argv[1], {.id2label = {"right", "wrong"}, .ignore_mismatched_sizes = true}),
                             .args = args,
                             .train_dataset = sums(0, 96, "sums to train on").map(tokenizer, columns),
                             .eval_dataset = sums(96, 128, "sums to evaluate on").map(tokenizer, columns),
                             .compute_metrics = recall_of_wrong});
  trainer.train();
  const auto said = trainer.predict(sums(128, 132, "new sums").map(tokenizer, columns));
  if (lockstep::distributed::rank() == 0) {
    for (size_t row = 0; row < static_cast<size_t>(said.num_rows); ++row) {
      const auto best = said.predictions[2 * row + 1] > said.predictions[2 * row] ? 1 : 0;
      std::cout << "row " << row << ": " << said.id2label.at(best) << '\n';
    }
    std::cout << "recall of wrong sums " << trainer.evaluate().at("eval_recall_of_wrong") << '\n';
  } else {
    trainer.evaluate();  // collective: every process takes part
  }
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
