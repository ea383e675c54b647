#include "lockstep/optim/rule.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/arguments.h"
#include "lockstep/optim/metric_schedule.h"
#include "lockstep/optim/options.h"
#include "lockstep/optim/schedule.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <string_view>

namespace lockstep::optim {
namespace {

/// Fused kernels, paging and other devices' versions change where and how fast, not what.
const std::set<std::string, std::less<>> kAdamWNames = {"adamw_torch",      "adamw_torch_fused",     "adamw_torch_xla",
                                                        "adamw_apex_fused", "adamw_torch_npu_fused", "adamw_hf",
                                                        "paged_adamw_32bit"};

void refuse_weight_decay(std::string_view name, const std::string& arguments) {
  // transformers gives both parameter groups a weight_decay of their own, so this one would have no effect.
  if (arguments.find("weight_decay") != std::string::npos) {
    throw Error::usage("optim_args = {}: weight_decay of {} is a flag of its own. Use --weight_decay.", arguments, name);
  }
}

template <class Rule>
Rule read_rule(const OptimOptions& options) {
  Rule rule;
  if (!options.optim_args) return rule;
  refuse_weight_decay(options.optim, *options.optim_args);
  read_assignments(*options.optim_args, options::collect(rule), {"optim_args", options.optim});
  return rule;
}

void refuse_arguments(const OptimOptions& options, std::string_view remedy) {
  if (!options.optim_args || options.optim_args->find_first_not_of(' ') == std::string::npos) return;
  throw Error::usage("optim_args = {}: {} takes none. {}", *options.optim_args, options.optim, remedy);
}

SgdRule read_sgd(const OptimOptions& options) {
  const auto rule = read_rule<SgdRule>(options);
  if (rule.nesterov && (rule.momentum <= 0 || rule.dampening != 0)) {
    throw Error::usage("optim_args = {}: nesterov needs momentum above 0 and no dampening. Try momentum=0.9,nesterov=true.",
                       options.optim_args.value_or(""));
  }
  return rule;
}

struct StateList {
  std::array<const char*, kMaxStates> names = {};
  std::ptrdiff_t count = 0;
};

StateList list_states(const OptimizerRule& rule, bool is_matrix) {
  StateList list;
  const auto add = [&](const char* name) { list.names[static_cast<size_t>(list.count++)] = name; };
  if (std::holds_alternative<AdamWRule>(rule)) {
    add("exp_avg");
    add("exp_avg_sq");
  } else if (const auto* sgd = std::get_if<SgdRule>(&rule)) {
    if (sgd->momentum != 0) add("momentum_buffer");
  } else if (std::holds_alternative<AdagradRule>(rule)) {
    add("sum");
  } else if (const auto* rms = std::get_if<RmsPropRule>(&rule)) {
    add("square_avg");
    if (rms->momentum > 0) add("momentum_buffer");
    if (rms->centered) add("grad_avg");
  } else if (std::holds_alternative<LionRule>(rule)) {
    add("exp_avg");
  } else if (!is_matrix) {
    add("exp_avg_sq");
  }
  return list;
}

}  // namespace

std::string optimizer_name(const OptimizerRule& rule) {
  static constexpr std::array kNames = {"AdamW", "SGD", "Adagrad", "RMSprop", "Lion", "Adafactor"};
  static_assert(kNames.size() == std::variant_size_v<OptimizerRule>);
  return kNames[rule.index()];
}

bool is_factored(const OptimizerRule& rule) { return std::holds_alternative<AdafactorRule>(rule); }

std::vector<std::string> state_names(const OptimizerRule& rule, bool is_matrix) {
  const StateList list = list_states(rule, is_matrix);
  return {list.names.begin(), list.names.begin() + list.count};
}

size_t num_states(const OptimizerRule& rule, bool is_matrix) {
  return static_cast<size_t>(list_states(rule, is_matrix).count);
}

OptimizerRule make_rule(const OptimOptions& options) {
  const std::string& name = options.optim;
  if (kAdamWNames.contains(name)) {
    refuse_arguments(options, "Use --adam_beta1, --adam_beta2, --adam_epsilon, --weight_decay.");
    return AdamWRule{options.adam_beta1, options.adam_beta2, options.adam_epsilon};
  }
  if (name == "sgd") return read_sgd(options);
  if (name == "adagrad") return read_rule<AdagradRule>(options);
  if (name == "rmsprop") return read_rule<RmsPropRule>(options);
  if (name == "lion_32bit" || name == "paged_lion_32bit") {
    refuse_arguments(options, "Use --adam_beta1, --adam_beta2, --weight_decay.");
    return LionRule{options.adam_beta1, options.adam_beta2};
  }
  if (name == "adafactor") {
    refuse_arguments(options, "Its constants are those of transformers' Trainer.");
    return AdafactorRule{};
  }
  throw Error::usage("optim = {}: is not there. Use adamw_torch_fused, sgd, adagrad, rmsprop, lion_32bit or adafactor.",
                     name);
}

void check_options(const OptimOptions& options) {
  make_rule(options);
  constexpr int64_t kAnyTotal = 1'000;
  const Schedule schedule = make_schedule(options, kAnyTotal);
  if (schedule.follows_metric()) {
    MetricSchedule(schedule.kind, options.lr_scheduler_kwargs, options.learning_rate);
  }
}

}  // namespace lockstep::optim
