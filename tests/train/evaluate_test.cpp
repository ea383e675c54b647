// An evaluation counts every row once and gives the same bits in every layout.
#include "lockstep/train/evaluate.h"
#include "lockstep/train/sft_task.h"

#include "lockstep/base/philox.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
const fs::path kEvaluatedModel = fs::path(LOCKSTEP_TEST_DATA) / "models" / "tiny" / "llama";

std::vector<data::TokenRow> rows_to_evaluate(int count) {
  std::vector<data::TokenRow> rows;
  const RandomStream stream{.seed = 3};
  uint64_t drawn = 0;
  for (int row = 0; row < count; ++row) {
    data::TokenRow tokens;
    const int length = 3 + static_cast<int>(stream.word(drawn++) % 30);
    for (int i = 0; i < length; ++i) {
      tokens.ids.push_back(static_cast<int32_t>(stream.word(drawn++) % 500));
      tokens.trained.push_back(i > 1 ? 1 : 0);
    }
    tokens.source_row = row;
    rows.push_back(tokens);
  }
  return rows;
}

struct LoadedWeights {
  explicit LoadedWeights(const SftTask& task)
      : layout(task.param_specs()), params(layout, task.compute_dtype(), 1) {
    ThreadTeam team(1);
    task.load_weights(layout, tensor::WeightFiles::open(kEvaluatedModel),
                      [&](tensor::ParamId id, const at::Tensor& stored) {
                        const tensor::ParamSlot& slot = layout.slot(id);
                        params.segment(slot.segment).narrow(0, slot.offset, slot.numel).copy_(stored.reshape({-1}));
                      },
                      team);
  }
  tensor::ParamLayout layout;
  tensor::ParamStore params;
};

std::vector<Evaluation> evaluate_on(const SftTask& task, const tensor::ParamStore& params, int ranks, int threads) {
  auto comms = comm::make_threads(ranks, Milliseconds(20'000));
  std::vector<Evaluation> found(comms.size());
  std::vector<std::jthread> running;
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    running.emplace_back([&, rank] {
      ThreadTeam team(threads);
      found[rank] = evaluate(task, params, {.grain_tokens = 64, .min_grains = 4}, *comms[rank], team);
    });
  }
  running.clear();
  return found;
}

TEST(Evaluate, GivesTheSameBitsForAnyRanksAndThreads) {
  const std::vector<data::TokenRow> rows = rows_to_evaluate(37);
  const SftTask task(model::read_decoder_config(kEvaluatedModel), rows, at::kBFloat16);
  const LoadedWeights weights(task);
  const Evaluation one = evaluate_on(task, weights.params, 1, 1).front();
  for (const auto& [ranks, threads] : {std::pair{1, 3}, {2, 1}, {3, 2}, {37, 1}, {50, 1}}) {
    for (const Evaluation& other : evaluate_on(task, weights.params, ranks, threads)) {
      EXPECT_EQ(other.loss(), one.loss()) << ranks << " ranks";
      EXPECT_EQ(other.entropy(), one.entropy());
      EXPECT_EQ(other.accuracy(), one.accuracy());
      EXPECT_EQ(other.num_rows, 37);
    }
  }
}

TEST(Evaluate, CountsEveryRowOnceAndAgreesWithTrainingsForward) {
  const std::vector<data::TokenRow> rows = rows_to_evaluate(9);
  const SftTask task(model::read_decoder_config(kEvaluatedModel), rows, at::kFloat);
  const LoadedWeights weights(task);
  const Evaluation all = evaluate_on(task, weights.params, 2, 1).front();
  int64_t targets = 0, tokens = 0;
  double nll = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    targets += rows[row].num_targets();
    tokens += static_cast<int64_t>(rows[row].ids.size());
    const GrainRows alone{{static_cast<int64_t>(row)}, {0}, static_cast<int64_t>(rows[row].ids.size())};
    nll += task.evaluate_grain(weights.params, alone, {}).nll.value();
  }
  EXPECT_EQ(all.sums.num_targets, targets);
  EXPECT_EQ(all.num_tokens, tokens);
  EXPECT_EQ(all.num_rows, 9);
  EXPECT_FALSE(all.outputs.defined());
  // float32 products of other shapes: the sum of 9 documents' losses agrees to far better than 1e-4.
  EXPECT_NEAR(all.sums.nll.value(), nll, 1e-4 * nll);
}

}  // namespace
}  // namespace lockstep::train
