// Exact sums are not only order-free: they are at least as near to the truth as float32 sums.
#include "run_layout.h"
#include "support/collecting_sink.h"

#include "lockstep/train/sft_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::law {
namespace {

/// Sends every contribution to three accumulations.
class Tee final : public tensor::GradSink {
 public:
  explicit Tee(std::vector<tensor::GradSink*> sinks) : sinks_(std::move(sinks)) {}
  void add(tensor::ParamId id, const at::Tensor& grad) override {
    for (tensor::GradSink* sink : sinks_) sink->add(id, grad);
  }
  void add_rows(tensor::ParamId id, const at::Tensor& rows, const at::Tensor& grad) override {
    for (tensor::GradSink* sink : sinks_) sink->add_rows(id, rows, grad);
  }

 private:
  std::vector<tensor::GradSink*> sinks_;
};

double relative_error(tensor::GradAccumulator& sums, const tensor::ParamLayout& layout, tensor::ParamId id,
                      const at::Tensor& truth) {
  const tensor::ParamSlot& slot = layout.slot(id);
  at::Tensor grad = at::empty({slot.numel}, at::kFloat);
  for (int64_t begin = 0; begin < slot.numel; begin += tensor::kPieceElements) {
    const std::span<float> room(grad.data_ptr<float>() + begin,
                                static_cast<size_t>(std::min(tensor::kPieceElements, slot.numel - begin)));
    const auto values = sums.gradient(slot.segment, (slot.offset + begin) / tensor::kPieceElements, room);
    if (values.data() != room.data()) std::copy(values.begin(), values.end(), room.begin());
  }
  const at::Tensor mine = grad.to(at::kDouble);
  const at::Tensor want = truth.reshape({-1}).to(at::kDouble);
  return ((mine - want).norm() / want.norm()).item<double>();
}

TEST(ExactSums, AreAsNearToFloat64AsFloat32SumsInEveryTensor) {
  const Problem problem = load_problem("llama");
  const tensor::ParamLayout layout(model::Decoder::param_specs(problem.config));
  tensor::ParamStore params(layout, at::kFloat, 1);
  model::load_weights(layout, problem.weights, problem.config.tie_word_embeddings,
                      [&](tensor::ParamId id, const at::Tensor& stored) {
                        const tensor::ParamSlot& slot = layout.slot(id);
                        params.segment(slot.segment).narrow(0, slot.offset, slot.numel).copy_(stored.reshape({-1}));
                      });
  const model::Decoder decoder(problem.config, 64, at::kFloat);
  const data::Order order({.num_rows = static_cast<int64_t>(problem.rows.size()), .global_batch = 96, .max_steps = 1});
  train::PlanOptions options;
  options.cut = {.grain_tokens = 64, .min_grains = 96};  // many contributions to each element
  const train::UpdatePlan plan = train::plan_update(train::sizes_of(problem.rows), order.samples(1), options);
  ASSERT_GE(plan.grains.size(), 90U);

  tensor::GradAccumulator exact(layout, tensor::Reduction::Exact, 1);
  tensor::GradAccumulator plain(layout, tensor::Reduction::Float32, 1);
  testing::CollectingSink truth(layout);
  const std::vector<int> scales(static_cast<size_t>(layout.num_params()), tensor::kDefaultScaleBits);
  const std::vector<int64_t> contributions =
      train::SftTask(problem.config, problem.rows, at::kFloat).contributions(plan);
  exact.begin_update(scales, contributions);
  plain.begin_update(scales, contributions);
  Tee tee({&exact, &plain, &truth});
  const train::Network network{decoder, params, train::head_of(decoder)};
  for (const data::Grain& grain : plan.grains) {
    train::run_grain(network, train::make_grain(train::rows_of(plan, grain), problem.rows), {static_cast<double>(plan.num_targets)},
                     model::Keep::All, tee, [] {});
  }
  for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
    const double of_exact = relative_error(exact, layout, id, truth.sum(id));
    const double of_plain = relative_error(plain, layout, id, truth.sum(id));
    EXPECT_LE(of_exact, of_plain) << layout.spec(id).name;
    // Rounding to float32 at the end: 2^-24 per element at most.
    EXPECT_LE(of_exact, 0x1p-24 + 1e-8) << layout.spec(id).name;
  }
}

}  // namespace
}  // namespace lockstep::law
