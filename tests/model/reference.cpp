#include "model/reference.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/optim/adamw.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::testing {
namespace {

using nlohmann::json;

std::vector<Document> documents_of(const json& entry) {
  std::vector<Document> out;
  const json& rows = entry.at("inputs").at("input_ids");
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto labels = entry.at("labels").at(row).get<std::vector<int32_t>>();
    const auto mask = entry.at("inputs").at("attention_mask").at(row).get<std::vector<int>>();
    const auto length = static_cast<size_t>(std::count(mask.begin(), mask.end(), 1));
    Document document{rows[row].get<std::vector<int32_t>>(), std::vector<int32_t>(length, -1)};
    document.tokens.resize(length);
    for (size_t i = 0; i + 1 < length; ++i)
      if (labels[i + 1] >= 0) document.targets[i] = labels[i + 1];
    out.push_back(std::move(document));
  }
  return out;
}

ReferenceCase case_of(const json& entry) {
  ReferenceCase out{.name = entry.at("name"),
                    .documents = documents_of(entry),
                    .loss = entry.at("loss"),
                    .grad_norm_total = entry.at("grad_norm_total"),
                    .logits = {},
                    .grad_norms = entry.at("grad_norms")};
  for (const json& logits : entry.at("logits"))
    out.logits.push_back({logits.at("row"), logits.at("position"), logits.at("first8"), logits.at("sum"),
                          logits.at("argmax")});
  return out;
}

std::span<float> values_of(at::Tensor x) { return {x.mutable_data_ptr<float>(), static_cast<size_t>(x.numel())}; }

}  // namespace

Reference read_reference(const std::filesystem::path& file) {
  const json all = json::parse(read_file(file));
  const json& greedy = all.at("greedy");
  const json& adamw = all.at("adamw");
  Reference out{.cases = {},
                .greedy_prompt = greedy.at("prompt"),
                .greedy_tokens = greedy.at("new_tokens"),
                .greedy_smallest_margin = greedy.at("smallest_margin"),
                .adamw_case = adamw.at("case"),
                .learning_rate = adamw.at("lr"),
                .weight_decay = adamw.at("weight_decay"),
                .clip_norm = adamw.at("clip_norm"),
                .beta1 = adamw.at("betas").at(0),
                .beta2 = adamw.at("betas").at(1),
                .epsilon = adamw.at("eps"),
                .adamw_losses = adamw.at("losses"),
                .adamw_norms = adamw.at("norms_before_clip"),
                .router_case = {}};
  if (all.contains("router")) {
    const json& router = all.at("router");
    out.router_case = router.at("case");
    out.router_coefficient = router.at("coefficient");
    out.router_loss = router.at("aux_loss");
    out.loss_with_router = router.at("loss_with_aux");
  }
  for (const json& entry : all.at("cases")) out.cases.push_back(case_of(entry));
  return out;
}

const ReferenceCase& Reference::find(const std::string& name) const {
  const auto it = std::find_if(cases.begin(), cases.end(), [&](const ReferenceCase& c) { return c.name == name; });
  if (it == cases.end()) throw Error::data("reference.json has no case {}", name);
  return *it;
}

Tolerance float32_tolerance(const model::DecoderConfig& config) {
  const auto products = static_cast<double>(7 * config.num_layers + 1);
  const auto width = static_cast<double>(std::max(config.hidden_size, config.intermediate_size));
  const double relative = 0x1p-24 * std::sqrt(products * width);
  return {.logits = relative, .loss = relative / 4, .grad_norm = 2 * relative};
}

Tolerance bfloat16_tolerance(const model::DecoderConfig& config) {
  const double relative = 2 * 0x1p-9 * std::sqrt(static_cast<double>(12 * config.num_layers + 2));
  return {.logits = relative, .loss = relative / 4, .grad_norm = relative};
}

void expect_logits(const ModelRig& rig, const ReferenceCase& wanted, double tolerance) {
  const model::GrainInput grain = pack(wanted.documents);
  at::Tensor rows = at::empty({static_cast<int64_t>(wanted.logits.size())}, at::kLong);
  auto* row = rows.mutable_data_ptr<int64_t>();
  for (const ReferenceLogits& w : wanted.logits) *row++ = grain.doc_starts[static_cast<size_t>(w.row)] + w.position;
  const at::Tensor logits_RV =
      loss::lm_head_logits(rig.store(), rig.head(), rig.forward(grain), rows).to(at::kDouble).contiguous();

  const int64_t V = logits_RV.size(1);
  for (size_t i = 0; i < wanted.logits.size(); ++i) {
    const ReferenceLogits& w = wanted.logits[i];
    SCOPED_TRACE(fmt::format("{}, row {}, position {}", wanted.name, w.row, w.position));
    const double* got = logits_RV.const_data_ptr<double>() + static_cast<int64_t>(i) * V;
    double sum = 0, sum_of_sizes = 0, largest = 0;
    for (int64_t v = 0; v < V; ++v) {
      sum += got[v];
      sum_of_sizes += std::abs(got[v]);
      largest = std::max(largest, std::abs(got[v]));
    }
    for (size_t v = 0; v < w.first8.size(); ++v) EXPECT_NEAR(got[v], w.first8[v], tolerance * largest) << "logit " << v;
    EXPECT_NEAR(sum, w.sum, tolerance * sum_of_sizes);
    // The argmax is only certain up to the error of the two largest.
    const double best = *std::max_element(got, got + V);
    EXPECT_GE(got[w.argmax], best - 2 * tolerance * largest) << "argmax " << w.argmax;
  }
}

void expect_loss_and_gradients(const ModelRig& rig, const ReferenceCase& wanted, const Tolerance& tolerance) {
  SCOPED_TRACE(wanted.name);
  const model::GrainInput grain = pack(wanted.documents);
  const auto divisor = static_cast<double>(num_targets(grain));
  SumSink sink(rig.layout(), at::kFloat);
  const double loss = rig.backward(grain, divisor, model::Keep::All, sink);
  EXPECT_NEAR(loss, wanted.loss, tolerance.loss * wanted.loss);
  EXPECT_EQ(rig.loss(grain, divisor), loss) << "forward alone and forward with backward";
  ASSERT_EQ(wanted.grad_norms.size(), 5U);
  for (const auto& [name, norm] : wanted.grad_norms) {
    const tensor::ParamId id = rig.layout().find(name);
    ASSERT_GE(id, 0) << name;
    EXPECT_NEAR(sink.norm(id), norm, tolerance.grad_norm * norm) << name;
  }
  EXPECT_NEAR(sink.total_norm(), wanted.grad_norm_total, tolerance.grad_norm * wanted.grad_norm_total);
}

void expect_adamw_trajectory(ModelRig& rig, const Reference& wanted, const Tolerance& tolerance) {
  const model::GrainInput grain = pack(wanted.find(wanted.adamw_case).documents);
  const auto divisor = static_cast<double>(num_targets(grain));
  const int num_params = rig.layout().num_params();
  SumSink sink(rig.layout(), at::kFloat);
  std::vector<at::Tensor> exp_avg, exp_avg_sq;
  for (tensor::ParamId id = 0; id < num_params; ++id) {
    exp_avg.push_back(at::zeros(rig.layout().spec(id).shape, at::kFloat));
    exp_avg_sq.push_back(at::zeros(rig.layout().spec(id).shape, at::kFloat));
  }

  const size_t num_steps = wanted.adamw_norms.size();
  ASSERT_EQ(wanted.adamw_losses.size(), num_steps + 1);
  for (size_t step = 1; step <= num_steps; ++step) {
    SCOPED_TRACE(fmt::format("step {}", step));
    // Each step's gradients come from weights that carry the error of the steps before.
    const double growth = static_cast<double>(step) * tolerance.grad_norm;
    sink.clear();
    const double loss = rig.backward(grain, divisor, model::Keep::All, sink);
    EXPECT_NEAR(loss, wanted.adamw_losses[step - 1], growth * wanted.adamw_losses[0]);
    const double norm = sink.total_norm();
    EXPECT_NEAR(norm, wanted.adamw_norms[step - 1], growth * wanted.adamw_norms[step - 1]);
    const optim::AdamWStep adamw{.learning_rate = wanted.learning_rate,
                                 .beta1 = wanted.beta1,
                                 .beta2 = wanted.beta2,
                                 .epsilon = wanted.epsilon,
                                 .weight_decay = wanted.weight_decay,
                                 .step = static_cast<int64_t>(step),
                                 .grad_scale = optim::clip_scale(norm, wanted.clip_norm)};
    for (tensor::ParamId id = 0; id < num_params; ++id)
      optim::adamw_step(values_of(rig.store().weight(id)), values_of(exp_avg[static_cast<size_t>(id)]),
                        values_of(exp_avg_sq[static_cast<size_t>(id)]), values_of(sink.grad(id)), adamw);
  }
  EXPECT_NEAR(rig.loss(grain, divisor), wanted.adamw_losses.back(),
              static_cast<double>(num_steps + 1) * tolerance.grad_norm * wanted.adamw_losses[0]);
}

}  // namespace lockstep::testing
