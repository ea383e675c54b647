// The focal loss of own_loss/train.cpp on libtorch's tensors: the gradient comes from autograd. Links lockstep::torch.
#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include <ATen/ops/log_softmax.h>

#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 4) throw lockstep::Error(lockstep::ErrorKind::Usage, "own_loss_autograd MODEL DATASET OUTPUT");
  const auto tokenizer = lockstep::Tokenizer::from_pretrained(argv[1]);
  const auto tokenized = lockstep::load_dataset(argv[2]).map(
      tokenizer, {.text = "sentence1", .text_pair = "sentence2", .truncation = true, .max_length = 48});

  lockstep::TrainingArguments args;
  args.output_dir = argv[3];
  args.learning_rate = 1e-3;
  args.num_train_epochs = 1;
  args.save_strategy = "no";

  const auto focal_loss = [](const at::Tensor& logits, const at::Tensor& labels) {
    const at::Tensor log_p = at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
    const at::Tensor rest = log_p.exp().neg().add(1);
    return rest.pow(2).mul(log_p).neg();
  };
  lockstep::Trainer trainer({.model = lockstep::SequenceClassifier::from_pretrained(argv[1]),
                             .args = args,
                             .train_dataset = tokenized["train"],
                             .eval_dataset = tokenized["validation"],
                             .compute_loss_func = lockstep::tensor_loss(focal_loss),
                             .loss_name = "focal, gamma 2, autograd"});
  const auto result = trainer.train();
  if (lockstep::distributed::rank() == 0) std::cout << "focal loss " << result.metrics.at("eval_loss") << '\n';
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
