#include "bench_sft.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/sft_task.h"
#include "lockstep/train/update.h"

#include <algorithm>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::bench {
namespace {

train::TrainSetup setup_for(const PairOptions& options, int64_t num_rows, tensor::Reduction reduction) {
  train::TrainSetup setup;
  setup.order = {.num_rows = num_rows, .global_batch = options.global_batch, .max_steps = options.updates + 1};
  setup.schedule.total_updates = options.updates + 1;
  setup.optimizer.learning_rate = 2e-5;
  setup.reduction = reduction;
  return setup;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

/// The limit of all processes together, measured by all at the same time.
MatrixLimit joint_limit(const PairOptions& options, comm::Communicator& comm) {
  LimitOptions limit;
  limit.dtype = options.dtype;
  limit.model = options.model;
  limit.threads = options.threads;
  comm.barrier("before the limit");
  const MatrixLimit mine = matrix_limit(limit);
  MatrixLimit sum;
  for (const std::string& text : comm.all_gather_text(fmt::format("{:.17g} {:.17g}", mine.best, mine.libtorch), "limits")) {
    size_t end = 0;
    sum.best += std::stod(text, &end);
    sum.libtorch += std::stod(text.substr(end));
  }
  return sum;
}

/// Other load only ever adds, so the least of each is kept.
void keep_best(Phases& best, const train::UpdateMetrics& metrics) {
  const auto tokens = static_cast<double>(metrics.update_tokens);
  const auto keep = [&](double& least, double ms) { least = std::min(least, ms / tokens); };
  keep(best.step, metrics.step_ms);
  keep(best.compute, metrics.compute_ms);
  keep(best.reduce, metrics.reduce_ms);
  keep(best.optimizer, metrics.optimizer_ms);
}

/// The first update warms both up and is not counted.
PairResult take_turns(const PairOptions& options, comm::Communicator& comm) {
  ThreadTeam team(options.threads);
  const model::DecoderConfig config = model::read_decoder_config(options.model);
  const text::Tokenizer tokenizer = text::Tokenizer::from_folder(options.model);
  const text::ChatTemplate chat_template(tokenizer.chat_template().value_or(""));
  data::DataOptions data_options;
  data_options.dataset_name = options.data;
  data_options.max_length = options.max_length;
  const data::Dataset dataset =
      data::load_sft_dataset(data_options, tokenizer, &chat_template, config.vocab_size, team);
  const tensor::WeightFiles weights = tensor::WeightFiles::open(options.model);
  const auto num_rows = static_cast<int64_t>(dataset.rows.size());
  const train::SftTask task(config, dataset.rows, options.dtype);
  train::Trainer exact(setup_for(options, num_rows, tensor::Reduction::Exact), task, weights, comm, team);
  train::Trainer plain(setup_for(options, num_rows, tensor::Reduction::Float32), task, weights, comm, team);
  Phases best_exact, best_plain;
  std::vector<double> shares, limits, libtorch_limits, rates;
  for (int64_t update = 1; update <= options.updates + 1; ++update) {
    // Who goes first alternates, so that a slow drift of the machine favours neither.
    train::UpdateMetrics plain_metrics;
    if (update % 2 == 1) plain_metrics = plain.run_update(update);
    const train::UpdateMetrics metrics = exact.run_update(update);
    if (update % 2 == 0) plain_metrics = plain.run_update(update);
    // Last, so that neither trainer is always the one that runs after it.
    const MatrixLimit limit = joint_limit(options, comm);
    if (update == 1) continue;
    keep_best(best_exact, metrics);
    keep_best(best_plain, plain_metrics);
    rates.push_back(metrics.tokens_per_second());
    limits.push_back(limit.best);
    libtorch_limits.push_back(limit.libtorch);
    shares.push_back(rates.back() / limit.best);
  }
  return {best_exact.step / best_plain.step, median(shares), median(limits), median(libtorch_limits), median(rates), best_exact, best_plain};
}

}  // namespace

PairResult measure_pairs(const PairOptions& options) {
  if (options.processes == 1) return take_turns(options, *comm::make_self());
  const TempFolder folder("lockstep-bench");
  std::vector<pid_t> peers;
  int rank = 0;
  for (int peer = 1; peer < options.processes && rank == 0; ++peer) {
    const pid_t pid = fork();  // before libtorch starts a thread
    if (pid == 0) rank = peer;
    else peers.push_back(pid);
  }
  comm::GlooOptions gloo;
  gloo.rank = rank;
  gloo.size = options.processes;
  gloo.store_file = (folder.path() / "store").string();
  PairResult result;
  {
    const auto comm = comm::make_processes(gloo, comm::carrier_of_environment());
    result = take_turns(options, *comm);
    comm->barrier("the end");
  }
  if (rank != 0) _exit(0);
  for (const pid_t pid : peers) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) throw Error::peer("a benchmark process ended with status {}", status);
  }
  return result;
}

}  // namespace lockstep::bench
