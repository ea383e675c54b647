#include "lockstep/recipes/report.h"

#include "lockstep/base/grouped.h"
#include "lockstep/checkpoint/model_folder.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::recipes {
namespace {

/// Updates whose plans stand for the run.
constexpr int64_t kSampledUpdates = 8;
/// Below this share of busy threads the report names a remedy.
constexpr double kPoorBalance = 0.85;

double mean_balance(const std::vector<train::SampleSize>& sizes, const data::Order& order,
                    const train::PlanOptions& options, int64_t workers) {
  const int64_t count = std::min(kSampledUpdates, order.total_updates());
  double sum = 0;
  for (int64_t update = 1; update <= count; ++update) {
    sum += data::balance(train::plan_update(sizes, order.samples(update), options).costs, workers);
  }
  return sum / static_cast<double>(count);
}

std::string counted(int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string teams_words(int grain_threads) {
  return grain_threads == 1 ? std::string() : fmt::format(" in teams of {}", grain_threads);
}

std::string too_few_samples(const RunFacts& facts, const BalanceReport& balance) {
  const std::string text = "warning: threads wait for each other: there are too few samples per update for them";
  const int64_t workers = facts.batch.processes * facts.threads;
  if (facts.grain_threads > 1 || balance.num_grains * 2 > workers) return text;
  return text + fmt::format("; --grain_threads {} would have them share samples (it is part of the result, as the seed is)",
                            std::min<int64_t>(workers / balance.num_grains, facts.threads));
}

std::string row(const std::string& name, const std::string& text) { return fmt::format("  {:<12} {}", name, text); }

}  // namespace

BalanceReport report_balance(const std::vector<train::SampleSize>& sizes, const data::Order& order,
                             train::PlanOptions options, int64_t workers) {
  BalanceReport report;
  report.num_grains =
      static_cast<int64_t>(train::plan_update(sizes, order.samples(1), options).grains.size());
  report.balance = mean_balance(sizes, order, options, workers);
  if (report.balance >= kPoorBalance) return report;
  double best = report.balance;
  // More grains than samples there cannot be.
  const int64_t most = std::min(static_cast<int64_t>(order.samples(1).rows.size()),
                                8 * std::max(workers, options.cut.min_grains));
  for (int64_t grains = options.cut.min_grains + 1; grains <= most; ++grains) {
    options.cut.min_grains = grains;
    const double balance = mean_balance(sizes, order, options, workers);
    if (balance > best + 0.02) {
      best = balance;
      report.better_min_grains = grains;
    }
    if (balance >= 0.95) break;
  }
  return report;
}

std::vector<std::string> start_report(const RunFacts& facts, const std::vector<std::string>& data,
                                      const BalanceReport& balance) {
  std::vector<std::string> lines;
  lines.push_back(row("model", fmt::format("{}  {}, {} parameters, {} layers, computed in {}", facts.model_folder,
                                           facts.architecture, grouped(facts.num_parameters),
                                           facts.num_layers, checkpoint::dtype_name(facts.compute_dtype))));
  lines.insert(lines.end(), data.begin(), data.end());
  const Batch& batch = facts.batch;
  if (batch.per_device * batch.processes * batch.accumulation == batch.global) {
    lines.push_back(row("batch", fmt::format("{} per process x {} x {} accumulation = {} per update", batch.per_device,
                                             counted(batch.processes, "process", "processes"), batch.accumulation,
                                             counted(batch.global, "sample", "samples"))));
  } else {
    lines.push_back(row("batch", fmt::format("{} per update (--global_batch_size), on {}",
                                             counted(batch.global, "sample", "samples"),
                                             counted(batch.processes, "process", "processes"))));
  }
  lines.push_back(row("updates", fmt::format("{} ({} per epoch)", grouped(facts.total_updates),
                                             grouped(facts.updates_per_epoch))));
  lines.push_back(row("grains", fmt::format("{} in the first update, over {} x {}, balance {:.0f} %",
                                            balance.num_grains, counted(batch.processes, "process", "processes"),
                                            counted(facts.threads, "thread", "threads") + teams_words(facts.grain_threads),
                                            100 * balance.balance)));
  if (balance.balance < kPoorBalance) {
    lines.push_back(row("", balance.better_min_grains > 0
                                ? fmt::format("warning: threads wait for each other; --min_grains {} would help (it is "
                                              "part of the result, as the seed is)",
                                              balance.better_min_grains)
                                : too_few_samples(facts, balance)));
  }
  lines.push_back(row("activations", facts.activations));
  lines.push_back(row("result", fmt::format("{} (weights saved in {})", facts.output_folder, facts.saved_dtype)));
  return lines;
}

std::vector<std::string> start_report(RunFacts facts, const train::Trainer& trainer, const std::vector<std::string>& data) {
  facts.num_parameters = trainer.layout().num_elements();
  facts.compute_dtype = trainer.params().compute_dtype();
  facts.total_updates = trainer.order().total_updates();
  facts.updates_per_epoch = trainer.order().updates_per_epoch();
  facts.grain_threads = trainer.grain_threads();
  const int64_t workers = facts.batch.processes * trainer.grains_at_once();
  return start_report(facts, data, report_balance(trainer.task().sizes(), trainer.order(), trainer.plan_options(), workers));
}

}  // namespace lockstep::recipes
