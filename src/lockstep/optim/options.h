#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::optim {

/// The optimizer, its learning rate and clipping. Members are named as the flags of trl; the initialisers are its defaults.
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
    v("lr_scheduler_type", lr_scheduler_type,
      "How the learning rate changes after the warm-up; reduce_lr_on_plateau and greedy change it at evaluations.")
        .choices({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
                  "inverse_sqrt", "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr",
                  "warmup_stable_decay", "greedy"});
    v("warmup_steps", warmup_steps, "Warm-up: updates if 1 or more, a share of all updates if below 1.").at_least(0);
    v("weight_decay", weight_decay,
      "Weight decay, not for biases and norms; decoupled but for sgd, adagrad and rmsprop.").at_least(0);
    v("max_grad_norm", max_grad_norm, "Gradients are scaled down to this global norm; 0 = never.").at_least(0);
    v("adam_beta1", adam_beta1, "Decay of the first moment (AdamW, Lion).").at_least(0).below(1);
    v("adam_beta2", adam_beta2, "Decay of the second moment (AdamW); of the moment (Lion).").at_least(0).below(1);
    v("adam_epsilon", adam_epsilon, "Added to the root of the second moment (AdamW).").at_least(0);
    v("optim", optim, "The optimizer. All names with adamw mean lockstep's AdamW, both lions its Lion; nothing is paged.")
        .choices({"adamw_torch_fused", "adamw_torch", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla",
                  "adamw_torch_npu_fused", "paged_adamw_32bit", "sgd", "adagrad", "rmsprop", "lion_32bit",
                  "paged_lion_32bit", "adafactor"})
        .refused_values({"adalomo", "adamw_8bit", "adamw_anyprecision", "adamw_bnb_8bit", "adamw_torch_4bit",
                         "adamw_torch_8bit", "ademamix", "ademamix_8bit", "apollo_adamw", "apollo_adamw_layerwise",
                         "galore_adafactor", "galore_adafactor_layerwise", "galore_adamw", "galore_adamw_8bit",
                         "galore_adamw_8bit_layerwise", "galore_adamw_layerwise", "grokadamw", "lion_8bit", "lomo",
                         "paged_adamw_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit", "paged_lion_8bit",
                         "rmsprop_bnb", "rmsprop_bnb_32bit", "rmsprop_bnb_8bit", "schedule_free_adamw",
                         "schedule_free_radam", "schedule_free_sgd", "stable_adamw"},
                        "is not there yet; moments are float32 and lie in equal parts on all processes",
                        "Use adamw_torch_fused, sgd, adagrad, rmsprop, lion_32bit or adafactor.");
    v("lr_scheduler_kwargs", lr_scheduler_kwargs, "Extra arguments of the schedule, with transformers' names.").json();
    v("optim_args", optim_args,
      "Extra arguments of sgd, adagrad and rmsprop, with torch's names: momentum=0.9,nesterov=true.");
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
