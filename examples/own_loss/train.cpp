// A loss of one's own, without libtorch: the focal loss (Lin et al., 2017) of two or more classes, which cares less for rows
// that are right already. Run as examples/mrpc: ./own_loss MODEL DATASET OUTPUT
#include <lockstep/lockstep.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace {

constexpr double kGamma = 2;

/// -(1 - p)^g log p of the row's class, p by softmax, and its gradient by the logits.
void focal_loss(const lockstep::LossInput& input, std::span<float> losses, std::span<float> gradient) {
  const auto classes = static_cast<size_t>(input.num_labels);
  std::vector<double> p(classes);
  for (size_t row = 0; row < static_cast<size_t>(input.num_rows); ++row) {
    const auto logits = input.logits.subspan(row * classes, classes);
    const auto right = static_cast<size_t>(input.labels[row]);
    const double highest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += p[c] = std::exp(logits[c] - highest);
    for (double& share : p) share /= sum;
    const double log_p = logits[right] - highest - std::log(sum);
    const double rest = 1 - p[right];
    losses[row] = static_cast<float>(-std::pow(rest, kGamma) * log_p);
    // d loss / d log p; then d log p / d logit = [c is right] - p.
    const double slope = kGamma * std::pow(rest, kGamma - 1) * p[right] * log_p - std::pow(rest, kGamma);
    for (size_t c = 0; c < classes; ++c) {
      gradient[row * classes + c] = static_cast<float>(slope * ((c == right ? 1 : 0) - p[c]));
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw lockstep::Error(lockstep::ErrorKind::Usage, "own_loss MODEL DATASET OUTPUT");
  const auto tokenizer = lockstep::Tokenizer::from_pretrained(argv[1]);
  const auto tokenized = lockstep::load_dataset(argv[2]).map(
      tokenizer, {.text = "sentence1", .text_pair = "sentence2", .truncation = true, .max_length = 48});

  lockstep::TrainingArguments args;
  args.output_dir = argv[3];
  args.learning_rate = 1e-3;
  args.num_train_epochs = 1;
  args.save_strategy = "no";

  lockstep::Trainer trainer({.model = lockstep::SequenceClassifier::from_pretrained(argv[1]),
                             .args = args,
                             .train_dataset = tokenized["train"],
                             .eval_dataset = tokenized["validation"],
                             .compute_loss_func = focal_loss,
                             .loss_name = "focal, gamma 2"});
  const auto result = trainer.train();
  if (lockstep::distributed::rank() == 0) std::cout << "focal loss " << result.metrics.at("eval_loss") << '\n';
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
