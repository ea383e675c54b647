#include "lockstep/optim/rule.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::optim {
namespace {

OptimOptions asked(const std::string& optim, const std::string& arguments = "") {
  OptimOptions options;
  options.optim = optim;
  if (!arguments.empty()) options.optim_args = arguments;
  return options;
}

using Names = std::vector<std::string>;

TEST(Rule, TakesConstantsFromTheFlags) {
  OptimOptions options = asked("adamw_torch");
  options.adam_beta1 = 0.8;
  options.adam_beta2 = 0.95;
  options.adam_epsilon = 1e-6;
  const auto adamw = std::get<AdamWRule>(make_rule(options));
  EXPECT_EQ(adamw.beta1, 0.8);
  EXPECT_EQ(adamw.beta2, 0.95);
  EXPECT_EQ(adamw.epsilon, 1e-6);
  options.optim = "lion_32bit";
  EXPECT_EQ(std::get<LionRule>(make_rule(options)).beta2, 0.95);
  const auto sgd = std::get<SgdRule>(make_rule(asked("sgd", " momentum = 0.9, nesterov=True ")));
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_EQ(std::get<AdagradRule>(make_rule(asked("adagrad", "eps=1e-4"))).epsilon, 1e-4);
  const auto rms = std::get<RmsPropRule>(make_rule(asked("rmsprop", "alpha=0.9,centered=yes")));
  EXPECT_EQ(rms.alpha, 0.9);
  EXPECT_TRUE(rms.centered);
  EXPECT_TRUE(std::holds_alternative<AdafactorRule>(make_rule(asked("adafactor"))));
}

TEST(Rule, OtherNamesOfAdamWAndLionMeanTheSame) {
  for (const char* name : {"adamw_torch_fused", "adamw_torch", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla",
                           "adamw_torch_npu_fused", "paged_adamw_32bit"}) {
    EXPECT_EQ(optimizer_name(make_rule(asked(name))), "AdamW") << name;
  }
  EXPECT_EQ(optimizer_name(make_rule(asked("paged_lion_32bit"))), "Lion");
}

TEST(Rule, NamesStatesAsTorchDoes) {
  EXPECT_EQ(state_names(AdamWRule{}, true), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(state_names(SgdRule{}, true), Names{});
  EXPECT_EQ(state_names(SgdRule{.momentum = 0.9}, true), Names{"momentum_buffer"});
  EXPECT_EQ(state_names(AdagradRule{}, false), Names{"sum"});
  EXPECT_EQ(state_names(RmsPropRule{}, true), Names{"square_avg"});
  EXPECT_EQ(state_names(RmsPropRule{.momentum = 0.9, .centered = true}, true),
            (Names{"square_avg", "momentum_buffer", "grad_avg"}));
  EXPECT_EQ(state_names(LionRule{}, true), Names{"exp_avg"});
  EXPECT_EQ(state_names(AdafactorRule{}, true), Names{}) << "a matrix has rows and columns instead";
  EXPECT_EQ(state_names(AdafactorRule{}, false), Names{"exp_avg_sq"});
}

TEST(Rule, WhatIsWrongIsNamed) {
  struct Row {
    std::string optim, arguments, words;
  };
  const Row rows[] = {
      {"adamw_8bit", "", "optim = adamw_8bit: is not there. Use adamw_torch_fused"},
      {"sgd", "momentun=0.9", "momentun is not an argument of sgd. Did you mean momentum?"},
      {"sgd", "momentum", "'momentum' is not of the form key=value"},
      {"sgd", "momentum=0.9,", "'' is not of the form key=value"},
      {"sgd", "momentum=0.9,momentum=0.8", "optim_args = momentum=0.9,momentum=0.8: momentum stands in it twice"},
      {"sgd", "momentum=a", "momentum = a: must be a finite number"},
      {"sgd", "momentum=-1", "momentum = -1: must be at least 0"},
      {"sgd", "nesterov=true", "nesterov needs momentum above 0"},
      {"sgd", "weight_decay=0.1", "Use --weight_decay."},
      {"adamw_torch", "beta1=0.8", "adamw_torch takes none. Use --adam_beta1"},
      {"adafactor", "clip_threshold=2", "adafactor takes none"},
      {"lion_32bit", "beta1=0.8", "lion_32bit takes none"},
  };
  for (const Row& row : rows) {
    try {
      make_rule(asked(row.optim, row.arguments));
      ADD_FAILURE() << row.optim << " " << row.arguments << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(error.what()).find(row.words), std::string::npos) << error.what();
    }
  }
}

TEST(CheckOptions, LooksAtScheduleAndOptimizer) {
  EXPECT_NO_THROW(check_options(asked("rmsprop", "alpha=0.5")));
  EXPECT_THROW(check_options(asked("rmsprop", "beta=0.5")), Error);
  OptimOptions greedy = asked("sgd");
  greedy.lr_scheduler_type = "greedy";
  EXPECT_NO_THROW(check_options(greedy));
  greedy.lr_scheduler_kwargs = R"({"patiense": 1})";
  EXPECT_THROW(check_options(greedy), Error);
}

}  // namespace
}  // namespace lockstep::optim
