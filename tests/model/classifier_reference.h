#pragma once

#include "model/classifier_rig.h"
#include "model/reference.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

/// reference.json of classifiers: values computed by transformers in float32 (README of tests/data/models), in terms of
/// packed documents: rows lose their padding.
namespace lockstep::testing {

using loss::Problem;

struct ClassifierReferenceCase {
  std::string name;
  Problem problem = Problem::SingleLabel;
  std::vector<ClassDocument> documents;
  std::vector<float> labels;
  double loss = 0, grad_norm_total = 0;
  std::vector<std::vector<double>> logits;
  std::map<std::string, double> grad_norms;
};

struct AdamWReference {
  std::string case_name;
  double learning_rate = 0, weight_decay = 0, clip_norm = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  std::vector<double> losses;           ///< before each step and after the last
  std::vector<double> norms;            ///< before clipping
};

struct ClassifierReference {
  std::vector<ClassifierReferenceCase> cases;
  AdamWReference adamw;
  const ClassifierReferenceCase& find(const std::string& name) const;
};
ClassifierReference read_classifier_reference(const std::filesystem::path& file);
/// One decoder of classifier_reference.json, which has no AdamW trajectory.
std::vector<ClassifierReferenceCase> read_decoder_classifier_cases(const std::filesystem::path& file,
                                                                   const std::string& decoder);

/// As float32_tolerance (reference.h), with `products_per_layer` and two products in the head. A logit is a sum of
/// `width` terms that may cancel, so its error is relative to the largest logit of the case or 1, whichever is larger.
Tolerance classifier_tolerance(int64_t num_layers, int64_t products_per_layer, int64_t width);
/// bfloat16: 10 roundings per layer + 2, as bfloat16_tolerance.
Tolerance classifier_bfloat16_tolerance(int64_t num_layers);

/// Logits, loss, the named gradient norms and their total.
void expect_case(const ClassifierRig& rig, const ClassifierReferenceCase& wanted, const Tolerance& tolerance);
/// Trains the rig (float32) in place.
void expect_classifier_trajectory(ClassifierRig& rig, const ClassifierReference& wanted, const Tolerance& tolerance);

}  // namespace lockstep::testing
