#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

/// The optimizers and what a user may set of them. Torch-free. What each computes is in optimizer.h.
namespace lockstep::optim {

struct OptimOptions;

struct AdamWRule {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

/// --optim_args of sgd, adagrad and rmsprop: names and defaults of torch.optim.
struct SgdRule {
  double momentum = 0, dampening = 0;
  bool nesterov = false;  ///< needs momentum and no dampening

  template <class V>
  void visit(V& v) {
    v("momentum", momentum, "Share of the last direction that is kept.").at_least(0);
    v("dampening", dampening, "Share of the gradient that momentum leaves out.");
    v("nesterov", nesterov, "Looks one step of the momentum ahead.");
  }
};

struct AdagradRule {
  double lr_decay = 0, epsilon = 1e-10;

  template <class V>
  void visit(V& v) {
    v("lr_decay", lr_decay, "The learning rate is divided by 1 + (step - 1) lr_decay.").at_least(0);
    v("eps", epsilon, "Added to the root.").at_least(0);
  }
};

struct RmsPropRule {
  double alpha = 0.99, epsilon = 1e-8, momentum = 0;
  bool centered = false;

  template <class V>
  void visit(V& v) {
    v("alpha", alpha, "Decay of the mean of squares.").at_least(0).at_most(1);
    v("eps", epsilon, "Added to the root.").at_least(0);
    v("momentum", momentum, "Share of the last direction that is kept.").at_least(0);
    v("centered", centered, "Divides by the deviation instead of the root of the mean of squares.");
  }
};

struct LionRule {
  double beta1 = 0.9, beta2 = 0.999;  ///< transformers passes --adam_beta1 and --adam_beta2
};

/// As transformers' Trainer makes it: no relative step, no scaling by the parameter, no first moment.
struct AdafactorRule {
  double epsilon = 1e-30;         ///< added to every square
  double clip_threshold = 1;      ///< of the root mean square of a tensor's update
  double decay_rate = -0.8;       ///< beta2 of step t is 1 - t^decay_rate
};

using OptimizerRule = std::variant<AdamWRule, SgdRule, AdagradRule, RmsPropRule, LionRule, AdafactorRule>;

/// "AdamW", "SGD" ...
std::string optimizer_name(const OptimizerRule& rule);

/// The tensors beside the master that have one value per parameter element, with torch's names. `is_matrix`: the
/// parameter has two dimensions or more; Adafactor keeps rows and columns for those (kRowState, kColumnState) instead.
std::vector<std::string> state_names(const OptimizerRule& rule, bool is_matrix);
/// How many those are, at most kMaxStates. Allocates nothing: asked for every piece.
size_t num_states(const OptimizerRule& rule, bool is_matrix);
inline constexpr size_t kMaxStates = 3;
/// Whether matrices have kRowState and kColumnState.
bool is_factored(const OptimizerRule& rule);
inline constexpr const char* kRowState = "exp_avg_sq_row";     ///< shape without the last dimension
inline constexpr const char* kColumnState = "exp_avg_sq_col";  ///< shape without the last but one

/// What --optim, --optim_args and the --adam_* flags ask for. Throws Error{Usage}: an optimizer that is not there, an
/// argument that is unknown (with the nearest known one) or out of range.
OptimizerRule make_rule(const OptimOptions& options);

/// make_rule and make_schedule without a run: throws what they would throw. For the front program, before workers
/// start; `total_updates` is not known there and does not matter.
void check_options(const OptimOptions& options);

}  // namespace lockstep::optim
