#include "lockstep/train/evaluate.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/arena.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <mutex>

namespace lockstep::train {
namespace {

/// All rows as one update that nobody trains on.
UpdatePlan plan_all_rows(const Task& task, const data::CutOptions& cut, int64_t num_ranks) {
  data::UpdateSamples samples;
  samples.rows.reserve(task.sizes().size());
  for (size_t row = 0; row < task.sizes().size(); ++row) samples.rows.push_back(static_cast<int64_t>(row));
  PlanOptions options;
  options.cut = cut;
  options.num_ranks = num_ranks;
  options.cost = task.cost_model();
  return plan_update(task.sizes(), std::move(samples), options);
}

/// A row's outputs come from one rank, the others hold zeros; as integers their sum is exact. In place.
at::Tensor join_outputs(const std::vector<float>& mine, int64_t width, comm::Communicator& comm) {
  const auto count = static_cast<int64_t>(mine.size());
  at::Tensor bits = at::empty({count}, at::kLong);
  std::transform(mine.begin(), mine.end(), bits.data_ptr<int64_t>(),
                 [](float value) { return static_cast<int64_t>(std::bit_cast<uint32_t>(value)); });
  comm.all_reduce_sum(bits, "outputs of an evaluation");
  at::Tensor outputs = at::empty({count}, at::kFloat);
  const auto* words = bits.const_data_ptr<int64_t>();
  std::transform(words, words + count, outputs.data_ptr<float>(),
                 [](int64_t word) { return std::bit_cast<float>(static_cast<uint32_t>(word)); });
  return outputs.view({count / width, width});
}

void put_rows(std::vector<float>& all, const std::vector<int64_t>& rows, const std::vector<float>& some,
              int64_t width) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(some.begin() + static_cast<int64_t>(i) * width, width, all.begin() + rows[i] * width);
  }
}

}  // namespace

loss::LossSums sum_over_ranks(const loss::LossSums& mine, comm::Communicator& comm) {
  const auto nll = mine.nll.words();
  const auto entropy = mine.entropy.words();
  const auto router = mine.router.words();
  at::Tensor packed = at::empty({3 * ExactSum::kWords + 2}, at::kLong);
  auto* words = packed.data_ptr<int64_t>();
  std::copy(nll.begin(), nll.end(), words);
  std::copy(entropy.begin(), entropy.end(), words + ExactSum::kWords);
  std::copy(router.begin(), router.end(), words + 2 * ExactSum::kWords);
  words[3 * ExactSum::kWords] = mine.num_top1;
  words[3 * ExactSum::kWords + 1] = mine.num_targets;
  comm.all_reduce_sum(packed, "sums of the loss");

  loss::LossSums total;
  total.nll = ExactSum::from_words({words, ExactSum::kWords});
  total.entropy = ExactSum::from_words({words + ExactSum::kWords, ExactSum::kWords});
  total.router = ExactSum::from_words({words + 2 * ExactSum::kWords, ExactSum::kWords});
  total.num_top1 = words[3 * ExactSum::kWords];
  total.num_targets = words[3 * ExactSum::kWords + 1];
  return total;
}

Evaluation evaluate(const Task& task, const tensor::ParamStore& params, const data::CutOptions& cut,
                    comm::Communicator& comm, ThreadTeam& team) {
  const Clock::time_point start = Clock::now();
  const UpdatePlan plan = plan_all_rows(task, cut, comm.size());
  LS_CHECK(!plan.grains.empty(), "an evaluation without rows");
  const std::vector<int64_t>& mine = plan.dealt[static_cast<size_t>(comm.rank())];
  const int64_t width = task.output_width();
  std::vector<float> outputs(task.sizes().size() * static_cast<size_t>(width), 0.0F);
  loss::LossSums sums;
  std::mutex mutex;  // guards sums; rows of `outputs` belong to one grain each
  team.run(mine.size(), [&](size_t item, int) {
    const tensor::ArenaScope memory;
    const GrainRows grain = rows_of(plan, plan.grains[static_cast<size_t>(mine[item])]);
    std::vector<float> said(grain.rows.size() * static_cast<size_t>(width));
    const loss::LossSums part = task.evaluate_grain(params, grain, said);
    put_rows(outputs, grain.rows, said, width);
    const std::lock_guard lock(mutex);
    sums.merge(part);
  });

  Evaluation out;
  out.sums = sum_over_ranks(sums, comm);
  if (width > 0) out.outputs = join_outputs(outputs, width, comm);
  out.num_rows = static_cast<int64_t>(plan.samples.rows.size());
  out.num_tokens = plan.num_tokens;
  out.router_coefficient = task.router_coefficient();
  out.seconds = seconds_since(start);
  return out;
}

}  // namespace lockstep::train
