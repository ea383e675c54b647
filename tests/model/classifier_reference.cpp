#include "model/classifier_reference.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/optim/adamw.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::testing {
namespace {

using Json = nlohmann::json;

std::vector<ClassDocument> class_documents_of(const Json& inputs) {
  std::vector<ClassDocument> out;
  for (size_t row = 0; row < inputs.at("input_ids").size(); ++row) {
    const auto mask = inputs.at("attention_mask").at(row).get<std::vector<int>>();
    const auto length = static_cast<size_t>(std::count(mask.begin(), mask.end(), 1));
    ClassDocument document{inputs.at("input_ids").at(row).get<std::vector<int32_t>>(), {}};
    document.tokens.resize(length);
    if (inputs.contains("token_type_ids")) {
      document.types = inputs.at("token_type_ids").at(row).get<std::vector<int32_t>>();
      document.types.resize(length);
    }
    out.push_back(std::move(document));
  }
  return out;
}

loss::Problem problem_named(const std::string& name) {
  if (name == "single_label_classification") return loss::Problem::SingleLabel;
  if (name == "multi_label_classification") return loss::Problem::MultiLabel;
  if (name == "regression") return loss::Problem::Regression;
  throw Error::data("reference.json: problem {}", name);
}

ClassifierReferenceCase class_case_of(const Json& entry, const Json& inputs) {
  ClassifierReferenceCase out{.name = entry.at("name"),
                              .problem = problem_named(entry.at("problem")),
                              .documents = class_documents_of(inputs),
                              .labels = {},
                              .loss = entry.at("loss"),
                              .grad_norm_total = entry.at("grad_norm_total"),
                              .logits = entry.at("logits"),
                              .grad_norms = entry.at("grad_norms")};
  for (const Json& label : entry.at("labels")) {
    const auto of_document = label.is_array() ? label.get<std::vector<float>>() : std::vector{label.get<float>()};
    out.labels.insert(out.labels.end(), of_document.begin(), of_document.end());
  }
  return out;
}

}  // namespace

ClassifierReference read_classifier_reference(const std::filesystem::path& file) {
  const Json all = Json::parse(read_file(file));
  const Json& adamw = all.at("adamw");
  ClassifierReference out{.cases = {},
                          .adamw = {.case_name = adamw.at("case"),
                                    .learning_rate = adamw.at("lr"),
                                    .weight_decay = adamw.at("weight_decay"),
                                    .clip_norm = adamw.at("clip_norm"),
                                    .beta1 = adamw.at("betas").at(0),
                                    .beta2 = adamw.at("betas").at(1),
                                    .epsilon = adamw.at("eps"),
                                    .losses = adamw.at("losses"),
                                    .norms = adamw.at("norms_before_clip")}};
  for (const Json& entry : all.at("cases")) out.cases.push_back(class_case_of(entry, entry.at("inputs")));
  return out;
}

std::vector<ClassifierReferenceCase> read_decoder_classifier_cases(const std::filesystem::path& file,
                                                                   const std::string& decoder) {
  const Json all = Json::parse(read_file(file));
  const Json& entry = all.at("decoders").at(decoder);
  std::vector<ClassifierReferenceCase> out;
  for (const Json& c : entry.at("cases")) out.push_back(class_case_of(c, entry.at("inputs")));
  return out;
}

const ClassifierReferenceCase& ClassifierReference::find(const std::string& name) const {
  const auto it =
      std::find_if(cases.begin(), cases.end(), [&](const ClassifierReferenceCase& c) { return c.name == name; });
  if (it == cases.end()) throw Error::data("reference.json has no case {}", name);
  return *it;
}

Tolerance classifier_tolerance(int64_t num_layers, int64_t products_per_layer, int64_t width) {
  const double relative =
      0x1p-24 * std::sqrt(static_cast<double>(products_per_layer * num_layers + 2) * static_cast<double>(width));
  // A loss here is a mean over two documents, not over many targets.
  return {.logits = relative, .loss = relative, .grad_norm = 2 * relative};
}

Tolerance classifier_bfloat16_tolerance(int64_t num_layers) {
  const double relative = 2 * 0x1p-9 * std::sqrt(static_cast<double>(10 * num_layers + 2));
  return {.logits = relative, .loss = relative, .grad_norm = 2 * relative};
}

void expect_case(const ClassifierRig& rig, const ClassifierReferenceCase& wanted, const Tolerance& tolerance) {
  SCOPED_TRACE(wanted.name);
  const model::GrainInput grain = pack_classes(wanted.documents);
  const auto divisor = static_cast<double>(wanted.documents.size());
  SumSink sink(rig.layout(), at::kFloat);
  const loss::ClassifierLoss loss{.problem = wanted.problem};
  const auto got = rig.backward(grain, wanted.labels, loss, divisor, model::Keep::All, sink);

  double worst = 0;  // of the tolerance, for the record
  const auto expect_near = [&](double value, double other, double bound, const std::string& what) {
    EXPECT_NEAR(value, other, bound) << what;
    worst = std::max(worst, std::abs(value - other) / bound);
  };
  double scale = 1;
  for (const auto& row : wanted.logits)
    for (const double z : row) scale = std::max(scale, std::abs(z));
  const at::Tensor logits_DC = got.logits_DC.to(at::kDouble);
  for (size_t d = 0; d < wanted.logits.size(); ++d)
    for (size_t c = 0; c < wanted.logits[d].size(); ++c)
      expect_near(logits_DC.const_data_ptr<double>()[d * wanted.logits[d].size() + c], wanted.logits[d][c],
                  tolerance.logits * scale, fmt::format("document {} class {}", d, c));
  expect_near(got.sums.nll.value() / divisor, wanted.loss, tolerance.loss * std::max(wanted.loss, scale), "loss");
  EXPECT_EQ(rig.evaluate(grain, wanted.labels, loss).sums.nll.value(), got.sums.nll.value())
      << "forward alone and forward with backward";
  ASSERT_EQ(wanted.grad_norms.size(), 5U);
  for (const auto& [name, norm] : wanted.grad_norms)
    expect_near(sink.norm(rig.id(name)), norm, tolerance.grad_norm * norm, name);
  expect_near(sink.total_norm(), wanted.grad_norm_total, tolerance.grad_norm * wanted.grad_norm_total, "total norm");
  ::testing::Test::RecordProperty(wanted.name + "_percent_of_tolerance", static_cast<int>(std::ceil(100 * worst)));
}

namespace {

std::span<float> floats_of(at::Tensor x) { return {x.mutable_data_ptr<float>(), static_cast<size_t>(x.numel())}; }

}  // namespace

void expect_classifier_trajectory(ClassifierRig& rig, const ClassifierReference& wanted, const Tolerance& tolerance) {
  const AdamWReference& a = wanted.adamw;
  const ClassifierReferenceCase& c = wanted.find(a.case_name);
  const model::GrainInput grain = pack_classes(c.documents);
  const auto divisor = static_cast<double>(c.documents.size());
  const int num_params = rig.layout().num_params();
  SumSink sink(rig.layout(), at::kFloat);
  std::vector<at::Tensor> exp_avg, exp_avg_sq;
  for (tensor::ParamId id = 0; id < num_params; ++id) {
    exp_avg.push_back(at::zeros(rig.layout().spec(id).shape, at::kFloat));
    exp_avg_sq.push_back(at::zeros(rig.layout().spec(id).shape, at::kFloat));
  }
  ASSERT_EQ(a.losses.size(), a.norms.size() + 1);
  ASSERT_EQ(a.norms.size(), 5U);
  for (size_t step = 1; step <= a.norms.size(); ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    // Each step's gradients come from weights that carry the error of the steps before.
    const double growth = static_cast<double>(step) * tolerance.grad_norm;
    sink.clear();
    const auto out = rig.backward(grain, c.labels, {}, divisor, model::Keep::All, sink);
    EXPECT_NEAR(out.sums.nll.value() / divisor, a.losses[step - 1], growth * a.losses[0]);
    const double norm = sink.total_norm();
    EXPECT_NEAR(norm, a.norms[step - 1], growth * a.norms[step - 1]);
    const optim::AdamWStep adamw{.learning_rate = a.learning_rate,
                                 .beta1 = a.beta1,
                                 .beta2 = a.beta2,
                                 .epsilon = a.epsilon,
                                 .weight_decay = a.weight_decay,
                                 .step = static_cast<int64_t>(step),
                                 .grad_scale = optim::clip_scale(norm, a.clip_norm)};
    for (tensor::ParamId id = 0; id < num_params; ++id)
      optim::adamw_step(floats_of(rig.store().weight(id)), floats_of(exp_avg[static_cast<size_t>(id)]),
                        floats_of(exp_avg_sq[static_cast<size_t>(id)]), floats_of(sink.grad(id)), adamw);
  }
  EXPECT_NEAR(rig.evaluate(grain, c.labels, {}).sums.nll.value() / divisor, a.losses.back(),
              static_cast<double>(a.norms.size() + 1) * tolerance.grad_norm * a.losses[0]);
}

}  // namespace lockstep::testing
