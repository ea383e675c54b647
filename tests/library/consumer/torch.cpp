#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include <iostream>
#include <vector>

/// Squared error by autograd: (0.5 - 3)^2 and its slope 2 (0.5 - 3).
int main() {
  const lockstep::LossFunction loss = lockstep::tensor_loss(
      [](const at::Tensor& logits, const at::Tensor& labels) { return logits.sub(labels).pow(2).sum(1); });
  const std::vector<float> logits = {0.5F}, labels = {3.0F};
  std::vector<float> losses(1), gradient(1);
  loss({.num_rows = 1, .num_labels = 1, .logits = logits, .labels = labels}, losses, gradient);
  std::cout << "loss " << losses[0] << " gradient " << gradient[0] << '\n';
}
