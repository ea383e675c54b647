#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::optim {

/// AdamW, its learning rate and clipping. Members are named as the flags of trl; the initialisers are its defaults.
/// visit() is written in the words of options/field.h.
struct OptimOptions {
  double learning_rate = 2e-5;
  std::string lr_scheduler_type = "linear";
  double warmup_steps = 0;  ///< >= 1: updates (cut to an integer); below 1: share of all updates, rounded up
  double weight_decay = 0;
  double max_grad_norm = 1;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  std::string optim = "adamw_torch_fused";

  std::optional<std::string> lr_scheduler_kwargs;
  std::optional<std::string> optim_args;
  std::optional<std::string> optim_target_modules;
  bool average_tokens_across_devices = true;
  double label_smoothing_factor = 0;
  std::string loss_type = "nll";

  template <class V>
  void visit(V& v) {
    v.group("Optimizer");
    v("learning_rate", learning_rate, "Peak learning rate.").at_least(0);
    v("lr_scheduler_type", lr_scheduler_type, "How the learning rate changes after the warm-up.")
        .choices({"linear", "cosine", "constant", "constant_with_warmup"})
        .refused_values({"cosine_with_restarts", "polynomial", "inverse_sqrt", "reduce_lr_on_plateau",
                         "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay", "greedy"},
                        "is not there yet", "Use linear, cosine, constant or constant_with_warmup.");
    v("warmup_steps", warmup_steps, "Warm-up: updates if 1 or more, a share of all updates if below 1.").at_least(0);
    v("weight_decay", weight_decay, "Decoupled weight decay; not for biases and norms.").at_least(0);
    v("max_grad_norm", max_grad_norm, "Gradients are scaled down to this global norm; 0 = never.").at_least(0);
    v("adam_beta1", adam_beta1, "Decay of the first moment.").at_least(0).below(1);
    v("adam_beta2", adam_beta2, "Decay of the second moment.").at_least(0).below(1);
    v("adam_epsilon", adam_epsilon, "Added to the root of the second moment.").at_least(0);
    v("optim", optim, "The optimizer; both names mean lockstep's AdamW.")
        .choices({"adamw_torch_fused", "adamw_torch"})
        .refused_values({"adafactor", "adamw_8bit", "adamw_bnb_8bit", "adamw_apex_fused", "adamw_anyprecision",
                         "adamw_torch_4bit", "adamw_torch_8bit", "ademamix", "ademamix_8bit", "adagrad", "apollo_adamw",
                         "galore_adamw", "galore_adafactor", "grokadamw", "lion_32bit", "lion_8bit", "lomo", "adalomo",
                         "paged_adamw_32bit", "paged_adamw_8bit", "paged_lion_32bit", "paged_lion_8bit", "rmsprop",
                         "rmsprop_bnb", "schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd", "sgd",
                         "stable_adamw"},
                        "is not there yet", "Use adamw_torch_fused.");
    v("lr_scheduler_kwargs", lr_scheduler_kwargs, "Extra arguments of the schedule.")
        .json()
        .refused("the four schedules have no further arguments", "Leave it out.");
    v("optim_args", optim_args, "Extra arguments of the optimizer.")
        .refused("AdamW has no further arguments", "Use --adam_beta1, --adam_beta2, --adam_epsilon, --weight_decay.");
    v("optim_target_modules", optim_target_modules, "Layers that GaLore and APOLLO project.")
        .refused("GaLore and APOLLO are not there yet", "Leave it out.");
    v("average_tokens_across_devices", average_tokens_across_devices, "Divide the loss by the tokens of all processes.")
        .refused("the loss is always the mean over the update's trained tokens, on any number of processes",
                 "Leave it out.");
    v("label_smoothing_factor", label_smoothing_factor, "Share of the target's probability given to all tokens.")
        .refused("label smoothing is not there yet", "Leave it out.");
    v("loss_type", loss_type, "The loss: nll, the mean negative log-likelihood.")
        .refused("the only loss of sft so far is nll", "Use nll.");
  }
};

}  // namespace lockstep::optim
