#pragma once

#include "model/model_rig.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

/// reference.json: values computed by transformers in float32 (README of tests/data/models), in terms of packed
/// documents: rows lose their padding, labels are shifted by one.
namespace lockstep::testing {

struct ReferenceLogits {
  int64_t row = 0, position = 0;
  std::vector<double> first8;
  double sum = 0;
  int64_t argmax = 0;
};

struct ReferenceCase {
  std::string name;
  std::vector<Document> documents;
  double loss = 0, grad_norm_total = 0;
  std::vector<ReferenceLogits> logits;
  std::map<std::string, double> grad_norms;
};

struct Reference {
  std::vector<ReferenceCase> cases;
  std::vector<int32_t> greedy_prompt, greedy_tokens;
  double greedy_smallest_margin = 0;
  std::string adamw_case;
  double learning_rate = 0, weight_decay = 0, clip_norm = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  std::vector<double> adamw_losses;  ///< before each step and after the last
  std::vector<double> adamw_norms;   ///< before clipping
  std::string router_case;           ///< mixtures of experts: of the load-balancing loss; else empty
  double router_coefficient = 0, router_loss = 0, loss_with_router = 0;

  const ReferenceCase& find(const std::string& name) const;
};
Reference read_reference(const std::filesystem::path& file);

/// How far values may be from the reference, relative to the largest of their kind. Bounds are about 4 standard
/// deviations of errors of random sign, which add as the root of their number.
struct Tolerance {
  double logits = 0;
  double loss = 0;       ///< a quarter of that of logits: a mean over at least 16 targets
  double grad_norm = 0;
};
/// float32: each of 7 products per layer + 1 is a sum of up to `width` terms with a rounding of at most u = 2^-24 per
/// term. A rounding error's standard deviation is about 0.2 u here (uniform below u, partial sums shorter than the
/// sum), both sides round: 4 x 0.2 x sqrt(2) is 1, so u * sqrt(products * width). Backward doubles the chain.
Tolerance float32_tolerance(const model::DecoderConfig& config);
/// bfloat16: products add in float32 and round once, so there are 12 roundings per layer + 2 of at most u = 2^-9, with
/// a standard deviation of about u / 2: 2 u * sqrt(roundings). A gradient's norm is a mean over many elements.
Tolerance bfloat16_tolerance(const model::DecoderConfig& config);

/// The claims of the golden tests; failures are reported with the values.
void expect_logits(const ModelRig& rig, const ReferenceCase& wanted, double tolerance);
/// Loss, the five gradient norms and the total.
void expect_loss_and_gradients(const ModelRig& rig, const ReferenceCase& wanted, const Tolerance& tolerance);
/// Trains the rig (float32) in place.
void expect_adamw_trajectory(ModelRig& rig, const Reference& wanted, const Tolerance& tolerance);

}  // namespace lockstep::testing
