#include "tiny_parts.h"

#include <fstream>

namespace lockstep::library_test {

Dataset tokenized(const Dataset& rows) {
  static const Tokenizer tokenizer = Tokenizer::from_pretrained(kTinyBert);
  return rows.map(tokenizer, {.text = "question", .text_pair = "solution", .truncation = true, .max_length = 40});
}

Dataset pair_rows(const std::string& split, size_t count) {
  static const DatasetDict pairs = load_dataset(kPairs);
  return tokenized(pairs[split].take(count));
}

SequenceClassifier tiny_classifier() {
  return SequenceClassifier::from_pretrained(kTinyBert, {.num_labels = 2, .ignore_mismatched_sizes = true});
}

TrainerParts tiny_parts(const fs::path& output) {
  TrainerParts parts{.model = tiny_classifier()};
  parts.args.output_dir = output.string();
  parts.args.learning_rate = 1e-3;
  parts.args.num_train_epochs = 1;
  parts.args.save_strategy = "no";
  parts.args.disable_tqdm = true;
  parts.args.threads_per_process = 2;
  parts.train_dataset = pair_rows("train", 24);
  parts.eval_dataset = pair_rows("validation", 10);
  return parts;
}

fs::path write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace lockstep::library_test
