#include "run_layout.h"

#include "lockstep/base/error.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/sft_task.h"

#include <cstring>
#include <exception>
#include <thread>

namespace lockstep::law {
namespace {

const fs::path kData = LOCKSTEP_TEST_DATA;

std::vector<data::TokenRow> load_rows(const fs::path& model, int64_t vocab_size, const std::string& packing) {
  const text::Tokenizer tokenizer = text::Tokenizer::from_folder(model);
  const text::ChatTemplate chat_template(
      tokenizer.chat_template().value_or("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"));
  data::DataOptions options;
  options.dataset_name = (kData / "gsm8k" / "chats-96.jsonl").string();
  options.max_length = packing.empty() ? 64 : 128;
  options.packing = !packing.empty();
  if (options.packing) options.packing_strategy = packing;
  ThreadTeam team(1);
  return data::load_sft_dataset(options, tokenizer, &chat_template, vocab_size, team).rows;
}

train::TrainSetup setup_for(const Job& job, const Layout& layout, int64_t num_rows) {
  train::TrainSetup setup;
  setup.order = {.num_rows = num_rows, .global_batch = layout.global_batch(), .max_steps = job.num_updates};
  setup.cut = {.grain_tokens = 256, .min_grains = 8};
  setup.grain_order = job.grain_order;
  setup.schedule = {.kind = optim::Schedule::Kind::Linear, .warmup_updates = 2, .total_updates = job.num_updates};
  setup.optimizer = {.learning_rate = job.learning_rate, .weight_decay = 0.1};
  setup.reduction = job.reduction;
  setup.scale_bits = job.scale_bits;
  setup.keep = job.keep;
  setup.grain_threads = job.grain_threads;
  return setup;
}

void append(std::vector<float>& to, const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<float>();
  to.insert(to.end(), data, data + tensor.numel());
}

void run_rank(const Job& job, const Layout& layout, const Problem& problem, comm::Communicator& comm,
              Outcome& outcome) {
  ThreadTeam team(layout.threads);
  const train::SftTask task(problem.config, problem.rows, job.compute_dtype,
                            {.attention_dropout = job.dropout, .seed = 7, .residual_dropout = job.dropout});
  train::Trainer trainer(setup_for(job, layout, static_cast<int64_t>(problem.rows.size())), task, problem.weights, comm,
                         team, job.probes);
  const bool writes = comm.rank() == 0;
  for (int64_t update = 1; update <= job.num_updates; ++update) {
    const train::UpdateMetrics metrics = trainer.run_update(update);
    if (!writes) continue;
    outcome.hashes.push_back(metrics.block_hashes);
    outcome.losses.push_back(metrics.loss);
    outcome.grad_norms.push_back(metrics.grad_norm);
    outcome.range_retries += metrics.range_retries;
  }
  outcome.grains_per_rank[static_cast<size_t>(comm.rank())] = trainer.num_grains_computed();
  for (tensor::ParamId id = 0; id < trainer.layout().num_params(); ++id) {
    for (const auto state : {shard::State::Master, shard::State::ExpAvg, shard::State::ExpAvgSq}) {
      const at::Tensor whole = trainer.gather(id, state);
      if (writes) append(outcome.state, whole);
    }
  }
}

}  // namespace

Problem load_problem(const std::string& model, const std::string& packing) {
  const fs::path folder = kData / "models" / "tiny" / model;
  Problem problem{model::read_decoder_config(folder), tensor::WeightFiles::open(folder), {}};
  problem.config.experts.router_loss = problem.config.experts.stored_router_loss;
  problem.rows = load_rows(folder, problem.config.vocab_size, packing);
  return problem;
}

std::string Layout::text() const {
  return fmt::format("{}x{}x{} ({} threads)", processes, per_device, accumulation, threads);
}

Outcome run(const Job& job, const Layout& layout) {
  const Problem problem = load_problem(job.model, job.packing);
  Outcome outcome;
  outcome.grains_per_rank.resize(static_cast<size_t>(layout.processes));
  auto ranks = comm::make_threads(layout.processes, Milliseconds(120'000));
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (auto& rank : ranks) {
      threads.emplace_back([&job, &layout, &outcome, &problem, &failure, &rank] {
        try {
          run_rank(job, layout, problem, *rank, outcome);
        } catch (const Error& error) {
          // The others then fail with Error{Peer}; the first cause is kept.
          if (!failure || error.kind() != ErrorKind::Peer) failure = std::current_exception();
        }
        rank.reset();
      });
    }
  }
  if (failure) std::rethrow_exception(failure);
  return outcome;
}

std::string difference(const Outcome& a, const Outcome& b) {
  for (size_t update = 0; update < std::min(a.hashes.size(), b.hashes.size()); ++update) {
    for (size_t block = 0; block < a.hashes[update].size(); ++block) {
      if (a.hashes[update][block] != b.hashes[update][block]) {
        return fmt::format("update {}: block {} differs", update + 1, block);
      }
    }
    if (a.losses[update] != b.losses[update]) {
      return fmt::format("update {}: loss {:.17g} and {:.17g}", update + 1, a.losses[update], b.losses[update]);
    }
    if (a.grad_norms[update] != b.grad_norms[update]) {
      return fmt::format("update {}: grad_norm {:.17g} and {:.17g}", update + 1, a.grad_norms[update],
                         b.grad_norms[update]);
    }
  }
  if (a.hashes.size() != b.hashes.size()) return "different numbers of updates";
  if (a.state.size() != b.state.size()) return "different numbers of elements";
  const bool same = std::memcmp(a.state.data(), b.state.data(), a.state.size() * sizeof(float)) == 0;
  return same ? "" : "masters or moments differ although no hash does";
}

}  // namespace lockstep::law
