// The first fifteen updates of transformers' Trainer on MRPC (golden/mrpc-minilm-fp32.json says how they were made).
#include "lockstep/base/files.h"
#include "lockstep/data/classify.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/classify_task.h"
#include "lockstep/train/update.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>

namespace lockstep {
namespace {

fs::path shared_folder() {
  const char* folder = std::getenv("LOCKSTEP_SHARED");
  return folder == nullptr ? fs::path() : fs::path(folder);
}

fs::path minilm() {
  const char* folder = std::getenv("LOCKSTEP_MINILM");
  return folder != nullptr ? folder : LOCKSTEP_MINILM_DEFAULT;
}

/// The head of the reference: w[i, j] = 0.02 sin(1 + i 384 + j), computed in double; its bias is 0, as a new one is.
void set_head(train::Trainer& trainer) {
  trainer.replace_masters([&](const shard::OwnedState& what, std::span<float> out) {
    if (trainer.layout().spec(what.param).name != "classifier.weight") return;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(0.02 * std::sin(1.0 + static_cast<double>(what.begin) + static_cast<double>(i)));
    }
  });
}

TEST(Mrpc, FollowsTransformers) {
  ASSERT_TRUE(fs::exists(minilm() / "model.safetensors")) << "run scripts/fetch-minilm " << minilm();
  const auto golden = nlohmann::json::parse(read_file(shared_folder() / "golden" / "mrpc-minilm-fp32.json"));
  ThreadTeam team(2);
  const text::Tokenizer tokenizer = text::Tokenizer::from_folder(minilm());
  model::EncoderConfig config = model::read_encoder_config(minilm());
  data::ClassifyDataOptions options;
  options.task = "mrpc";
  options.dataset_name = (shared_folder() / "data" / "mrpc").string();
  data::ClassifyNeeds needs;
  needs.validation = data::Wanted::No;
  needs.vocab_size = config.vocab_size;
  needs.max_positions = config.max_document_tokens();
  const data::ClassifyDataset dataset = data::load_classify_dataset(options, needs, tokenizer, team);
  const auto& rows = dataset.train.at(0).rows;
  ASSERT_EQ(rows.size(), 3668U);
  config.num_labels = dataset.labels.num_labels;

  train::ClassifyTaskOptions task_options;
  task_options.compute_dtype = at::kFloat;
  task_options.dropout = false;
  const auto task = train::make_classify_task(config, rows, task_options);
  train::TrainSetup setup;
  setup.order = {.num_rows = 3668, .global_batch = 32, .max_steps = 30};
  setup.schedule = {.kind = optim::Schedule::Kind::Linear, .total_updates = 30};
  setup.optimizer.learning_rate = 5e-5;
  const auto comm = comm::make_self();
  train::Trainer trainer(setup, *task, tensor::WeightFiles::open(minilm()), *comm, team);
  set_head(trainer);

  const auto& updates = golden["first_updates"];
  ASSERT_EQ(updates.size(), 15U);
  for (const auto& want : updates) {
    const int64_t update = want["step"];
    const train::UpdateMetrics got = trainer.run_update(update);
    // Sums of the same float32 products in another order: the bounds, 1e-4 in loss and 1e-3 in norm, relative.
    EXPECT_NEAR(got.loss / want["loss"].get<double>(), 1, 1e-4) << "update " << update;
    EXPECT_NEAR(got.grad_norm / want["grad_norm"].get<double>(), 1, 1e-3) << "update " << update;
    EXPECT_NEAR(got.learning_rate, want["learning_rate"].get<double>(), 1e-12);
  }
}

}  // namespace
}  // namespace lockstep
