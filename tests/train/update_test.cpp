// An update that is not finite: who is named, and what skipping leaves.
#include "lockstep/train/sft_task.h"
#include "lockstep/train/update.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::train {
namespace {

const fs::path kLlama = fs::path(LOCKSTEP_TEST_DATA) / "models" / "tiny" / "llama";

/// Four short rows; only the last one has token 500.
std::vector<data::TokenRow> make_rows() {
  std::vector<data::TokenRow> rows;
  for (int row = 0; row < 4; ++row) {
    data::TokenRow tokens;
    for (int i = 0; i < 12; ++i) tokens.ids.push_back(20 * row + i);
    if (row == 3) tokens.ids[4] = 500;
    tokens.trained.assign(tokens.ids.size(), 1);
    tokens.source_row = 10 + row;
    rows.push_back(tokens);
  }
  return rows;
}

class Rig {
 public:
  explicit Rig(NonFinitePolicy policy)
      : rows_(make_rows()),
        weights_(tensor::WeightFiles::open(kLlama)),
        comm_(comm::make_self()),
        team_(1),
        task_(model::read_decoder_config(kLlama), rows_, at::kFloat),
        trainer_(setup(policy), task_, weights_, *comm_, team_) {}
  Trainer& trainer() { return trainer_; }
  /// Of the weights that are computed with.
  void poison(const std::string& name, int64_t row) {
    const at::Tensor weight = trainer_.params().weight(trainer_.layout().find(name));
    weight.select(0, row).fill_(std::numeric_limits<double>::quiet_NaN());
  }

 private:
  static TrainSetup setup(NonFinitePolicy policy) {
    TrainSetup setup;
    setup.order = {.num_rows = 4, .global_batch = 4, .shuffle = false, .max_steps = 3};
    setup.cut = {.grain_tokens = 64, .min_grains = 2};
    setup.schedule = {.kind = optim::Schedule::Kind::Constant, .total_updates = 3};
    setup.optimizer = {.learning_rate = 1e-3};
    setup.non_finite = policy;
    return setup;
  }

  std::vector<data::TokenRow> rows_;
  tensor::WeightFiles weights_;
  std::unique_ptr<comm::Communicator> comm_;
  ThreadTeam team_;
  SftTask task_;
  Trainer trainer_;
};

std::string stop_message(Rig& rig, int64_t update = 1) {
  try {
    rig.trainer().run_update(update);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::NonFinite);
    return error.what();
  }
}

TEST(NonFinite, NamesTheRowWhoseEmbeddingIsBroken) {
  Rig rig(NonFinitePolicy::Stop);
  rig.poison("model.embed_tokens.weight", 500);
  const std::string message = stop_message(rig);
  EXPECT_NE(message.find("update 1:"), std::string::npos) << message;
  EXPECT_NE(message.find("first in embedding, row 14 of the data"), std::string::npos) << message;
  EXPECT_NE(message.find("--non_finite skip"), std::string::npos) << message;
}

TEST(NonFinite, NamesTheFirstLayerThatIsBroken) {
  Rig rig(NonFinitePolicy::Stop);
  rig.poison("model.layers.1.mlp.down_proj.weight", 3);
  EXPECT_NE(stop_message(rig).find("first in layer 1, rows "), std::string::npos);
}

TEST(NonFinite, NamesTheHead) {
  Rig rig(NonFinitePolicy::Stop);
  rig.poison("lm_head.weight", 7);
  EXPECT_NE(stop_message(rig).find("first in head, rows "), std::string::npos);
}

TEST(NonFinite, WeightsThatTheOptimizerSpoiltAreNoRowsFault) {
  for (const float spoilt : {std::numeric_limits<float>::quiet_NaN(), 1e30F}) {
    Rig rig(NonFinitePolicy::Stop);
    rig.trainer().restore({.update = 1, .updates_applied = 1}, [&](const shard::OwnedState& what, std::span<float> out) {
      std::fill(out.begin(), out.end(), what.state == shard::kMasterState ? spoilt : 0.0F);
    });
    const std::string message = stop_message(rig, 2);
    EXPECT_NE(message.find("the weights are spoilt: "), std::string::npos) << message;
    EXPECT_NE(message.find("--adam_epsilon"), std::string::npos) << message;
    EXPECT_EQ(message.find("Look at these rows"), std::string::npos) << message;
  }
}

TEST(NonFinite, SkippingChangesNoWeightAndNoCount) {
  Rig rig(NonFinitePolicy::Skip);
  const UpdateMetrics good = rig.trainer().run_update(1);
  EXPECT_FALSE(good.skipped);
  EXPECT_EQ(rig.trainer().num_updates_applied(), 1);
  rig.poison("model.layers.0.mlp.down_proj.weight", 3);
  const UpdateMetrics skipped = rig.trainer().run_update(2);
  EXPECT_TRUE(skipped.skipped);
  EXPECT_TRUE(std::isnan(skipped.loss));
  EXPECT_TRUE(std::isnan(skipped.grad_norm));
  EXPECT_EQ(skipped.block_hashes, good.block_hashes);
  EXPECT_EQ(rig.trainer().num_updates_applied(), 1);
}

}  // namespace
}  // namespace lockstep::train
