// Adafactor on the shards: what a tensor's statistics need from everyone, then the step (optim/adafactor.h).
#include "lockstep/base/error.h"
#include "lockstep/optim/adafactor.h"
#include "lockstep/shard/sharded_step.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <mutex>

namespace lockstep::shard {
namespace {

std::span<float> piece_of(const at::Tensor& flat, int64_t piece, int64_t numel) {
  return {flat.data_ptr<float>() + piece * tensor::kPieceElements, static_cast<size_t>(numel)};
}

}  // namespace

void ShardedStep::step_adafactor(const optim::OptimizerStep& step, const tensor::GradAccumulator& gradients) {
  factored_->take(step, [&](int segment, int64_t piece, std::span<float> room) {
    return gradients.gradient(segment, piece, room);
  });
  const std::vector<double> divisors = update_divisors(step, gradients);
  const tensor::ParamLayout& layout = params_.layout();
  change_pieces([&](const PieceRef& ref) {
    PieceBuffer buffer, room;
    const auto update = std::span(room).first(static_cast<size_t>(ref.numel));
    adafactor_update(ref, gradient_of(ref, gradients, buffer), step.grad_scale, update);
    optim::apply_update(piece_of(shards_[static_cast<size_t>(ref.segment)].master, ref.piece, ref.numel), update,
                        step.learning_rate, layout.spec(ref.param).decay ? step.weight_decay : 0,
                        divisors[static_cast<size_t>(ref.param)]);
  });
}

std::vector<double> ShardedStep::update_divisors(const optim::OptimizerStep& step,
                                                 const tensor::GradAccumulator& gradients) {
  const auto& rule = std::get<optim::AdafactorRule>(step.rule);
  const auto num_params = static_cast<size_t>(params_.layout().num_params());
  std::vector<ExactSum> squares(num_params);
  std::mutex mutex;  // guards squares
  team_.run(runs_.size(), [&](size_t item, int) {
    const Shard& shard = shards_[static_cast<size_t>(runs_[item].segment)];
    PieceBuffer buffer, room;
    std::vector<std::pair<tensor::ParamId, double>> sums;
    for_each_piece(runs_[item], [&](const PieceRef& ref) {
      const auto update = std::span(room).first(static_cast<size_t>(ref.numel));
      const std::span<const float> grad = gradient_of(ref, gradients, buffer);
      if (!params_.layout().spec(ref.param).is_matrix()) {
        optim::average_vector_squares(piece_of(shard.states[0], ref.piece, ref.numel), grad, rule, step.step,
                                      step.grad_scale);
      }
      adafactor_update(ref, grad, step.grad_scale, update);
      sums.emplace_back(ref.param, optim::sum_of_squares(update));
    });
    const std::lock_guard lock(mutex);
    for (const auto& [id, sum] : sums) squares[static_cast<size_t>(id)].add(sum);
  });
  at::Tensor words = at::zeros({static_cast<int64_t>(num_params), ExactSum::kWords}, at::kLong);
  for (size_t id = 0; id < num_params; ++id) {
    const auto mine = squares[id].words();
    std::copy(mine.begin(), mine.end(), words.data_ptr<int64_t>() + id * mine.size());
  }
  comm_.all_reduce_sum(words, "squares of updates");
  std::vector<double> divisors(num_params);
  for (size_t id = 0; id < num_params; ++id) {
    const int64_t* of_param = words.data_ptr<int64_t>() + id * ExactSum::kWords;
    const double sum = ExactSum::from_words({of_param, static_cast<size_t>(ExactSum::kWords)}).value();
    divisors[id] = optim::update_divisor(rule, sum, params_.layout().slot(static_cast<tensor::ParamId>(id)).numel);
  }
  return divisors;
}

void ShardedStep::adafactor_update(const PieceRef& ref, std::span<const float> grad, double grad_scale,
                                   std::span<float> update) {
  const Shard& shard = shards_[static_cast<size_t>(ref.segment)];
  if (!params_.layout().spec(ref.param).is_matrix()) {
    return optim::vector_update(update, grad, piece_of(shard.states[0], ref.piece, ref.numel), grad_scale);
  }
  const int64_t begin = (shard.first_piece + ref.piece) * tensor::kPieceElements - params_.layout().slot(ref.param).offset;
  optim::factored_update(update, grad, begin, factored_->shape(ref.param), factored_->row_factors(ref.param),
                         factored_->column_factors(ref.param), grad_scale);
}

}  // namespace lockstep::shard
