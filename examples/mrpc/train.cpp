// Fine-tunes BERT on GLUE's MRPC: do two sentences say the same? The C++ twin of the usual train.py.
//   ./mrpc [MODEL] [DATASET] [OUTPUT]                                alone
//   lockstep run --nproc_per_node 3 ./mrpc ...                       three processes; torchrun does as well
// DATASET holds train and validation as JSONL, CSV or TSV; columns sentence1, sentence2, label.
#include <lockstep/lockstep.h>

#include <iostream>

int main(int argc, char** argv) try {
  const std::string folder = argc > 1 ? argv[1] : "bert-base-uncased";
  const auto dataset = lockstep::load_dataset(argc > 2 ? argv[2] : "mrpc");

  const auto tokenizer = lockstep::Tokenizer::from_pretrained(folder);
  const auto tokenized = dataset.map(tokenizer, {.text = "sentence1", .text_pair = "sentence2", .truncation = true});

  const auto model = lockstep::SequenceClassifier::from_pretrained(folder, {.num_labels = 2});

  lockstep::TrainingArguments args;
  args.output_dir = argc > 3 ? argv[3] : "./results";
  args.num_train_epochs = 3;
  args.per_device_train_batch_size = 8;
  args.per_device_eval_batch_size = 8;
  args.eval_strategy = "epoch";
  args.save_strategy = "epoch";
  args.logging_dir = "./logs";
  args.logging_steps = 10;

  lockstep::Trainer trainer({.model = model,
                             .args = args,
                             .train_dataset = tokenized["train"],
                             .eval_dataset = tokenized["validation"]});
  const auto result = trainer.train();

  if (lockstep::distributed::rank() == 0) {
    std::cout << "accuracy " << result.metrics.at("eval_accuracy") << ", F1 " << result.metrics.at("eval_f1") << '\n';
  }
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
