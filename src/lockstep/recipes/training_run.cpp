#include "lockstep/recipes/training_run.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/train/flow.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::recipes {
namespace {

train::Strategy strategy(const std::string& name) {
  if (name == "steps") return train::Strategy::Steps;
  if (name == "epoch") return train::Strategy::Epoch;
  return name == "best" ? train::Strategy::Best : train::Strategy::No;
}

train::FlowOptions flow_of(const TrainingRunSetup& setup, int64_t total) {
  train::FlowOptions flow;
  flow.logging = strategy(setup.train.logging_strategy);
  flow.evaluation = setup.evaluate ? strategy(setup.evaluation.eval_strategy) : train::Strategy::No;
  flow.saving = strategy(setup.checkpoints.save_strategy);
  flow.logging_steps = train::steps_of(setup.train.logging_steps, total);
  flow.eval_steps = train::steps_of(setup.evaluation.eval_steps.value_or(setup.train.logging_steps), total);
  flow.save_steps = train::steps_of(setup.checkpoints.save_steps, total);
  flow.logging_first_step = setup.train.logging_first_step;
  flow.eval_delay = setup.evaluation.eval_delay;
  return flow;
}

/// Remembers of which update the last evaluation is: the same model is not evaluated twice.
class LastEvaluated final : public train::LoopCallback {
 public:
  void on_evaluate(const train::LoopState& state, train::LoopControl& /*control*/) override { update = state.update; }
  std::optional<int64_t> update;
};

/// Gives a schedule that follows a metric what each evaluation says, and the trainer the rate that comes of it.
class RateFromMetric final : public train::LoopCallback {
 public:
  RateFromMetric(optim::MetricSchedule schedule, std::string metric, train::Trainer& trainer)
      : schedule_(std::move(schedule)), metric_(std::move(metric)), trainer_(trainer) {
    trainer_.set_learning_rate(schedule_.learning_rate());
  }
  void restore(const std::string& state, const std::string& where) {
    schedule_.restore(state, where);
    trainer_.set_learning_rate(schedule_.learning_rate());
  }
  const optim::MetricSchedule& schedule() const { return schedule_; }
  void on_evaluate(const train::LoopState& state, train::LoopControl& /*control*/) override {
    schedule_.step(metrics::metric_for_best(state.last_evaluation, metric_));
    trainer_.set_learning_rate(schedule_.learning_rate());
  }

 private:
  optim::MetricSchedule schedule_;
  std::string metric_;
  train::Trainer& trainer_;
};

class TrainingRun {
 public:
  TrainingRun(const TrainingRunSetup& setup, train::Trainer& trainer, comm::Communicator& comm, launch::WorkerLink& link,
              checkpoint::OutputFolder* output)
      : setup_(setup),
        trainer_(trainer),
        comm_(comm),
        link_(link),
        output_(output),
        folder_(std::filesystem::absolute(output_folder(setup.train))),
        resumed_(find_resumed(folder_, setup.checkpoints.resume_from_checkpoint, setup.run_json)),
        run_json_(with_identity(setup.run_json, resumed_ ? resumed_->run_json : std::string())),
        done_(resumed_ ? std::optional(resumed_->cursor.update) : std::nullopt) {}

  TrainingEnd run(const std::function<void(Records&, const train::LoopState&)>& at_the_end) {
    begin();
    records_.emplace(records_options(), resumed_ ? resumed_->state : metrics::TrainerState{});
    progress_.emplace(console_options(setup_.train, link_.environment(), trainer_.order().total_updates()), output_, link_,
                      done_);
    TrainingEnd end;
    end.state = loop();
    end.totals = progress_->totals();
    end.totals.first_forward_s = setup_.first_forward_s ? setup_.first_forward_s() : 0;
    end.num_applied = trainer_.num_updates_applied();
    if (end.num_applied == 0) {
      throw Error::non_finite("all {} updates were skipped because they were not finite, so there is no trained model to "
                              "save. Lower --learning_rate, or look at the rows that --non_finite stop names.",
                              end.state.update);
    }
    end.best_update = take_best(end.state);
    end.evaluation = evaluate_result(end);
    if (at_the_end) at_the_end(*records_, end.state);
    save(end);
    return end;
  }

 private:
  bool writes_checkpoints() const { return setup_.checkpoints.save_strategy != "no"; }

  void say(const std::string& line) const {
    if (comm_.rank() == 0) fmt::print(stderr, "{}\n", line);
  }

  void begin() {
    if (setup_.metric_schedule) {
      rate_.emplace(*setup_.metric_schedule, setup_.evaluation.metric_for_best_model.value_or("loss"), trainer_);
      if (resumed_) rate_->restore(resumed_->schedule, (resumed_->folder / "run.json").string());
    }
    if (!resumed_) {
      if (output_ != nullptr) start_records(*output_, run_json_);
      return;
    }
    link_.phase("read the checkpoint");
    restore(trainer_, *resumed_);
    // What is done from here on is done with these options.
    if (output_ != nullptr) write_file_atomically(output_->path() / "run.json", run_json_);
    say(fmt::format("  {:<12} {} (update {})", "continues", resumed_->folder.string(), resumed_->cursor.update));
    for (const std::string& change : resumed_->changed) say(fmt::format("  {:<12} changed {}", "", change));
    if (*done_ >= trainer_.order().total_updates()) {
      say(fmt::format("  {:<12} nothing to train: update {} of {} is done", "", *done_, trainer_.order().total_updates()));
    }
  }

  train::LoopState loop() {
    std::optional<Checkpoints> checkpoints;
    std::optional<StopOnSignal> stop;
    if (writes_checkpoints()) {
      checkpoints.emplace(checkpoint_setup(), trainer_, comm_, *records_);
      stop.emplace();
    }
    train::LoopParts parts;
    parts.flow = flow_of(setup_, trainer_.order().total_updates());
    parts.evaluate = [&] { return evaluate(); };
    parts.save = [&](const train::LoopState& state) { checkpoints->save(state); };
    parts.callbacks = {&*records_, &*progress_, &last_evaluated_};
    if (rate_) parts.callbacks.push_back(&*rate_);
    if (stop) parts.callbacks.push_back(&*stop);
    parts.callbacks.insert(parts.callbacks.end(), setup_.callbacks.begin(), setup_.callbacks.end());
    parts.updates_done = done_.value_or(0);
    if (setup_.evaluate && setup_.evaluation.eval_on_start && !resumed_) evaluate();
    const train::LoopState end = train::run_loop(trainer_, comm_, parts);
    if (checkpoints) {
      link_.phase("finish the checkpoint");
      checkpoints->finish();
      leave_if_asked(end, *checkpoints);
    }
    return end;
  }

  /// SIGTERM or SLURM's warning reached some rank before the last update.
  void leave_if_asked(const train::LoopState& end, const Checkpoints& checkpoints) {
    if (end.update >= end.total_updates) return;
    bool asked = false;
    for (const std::string& text : comm_.all_gather_text(StopOnSignal::asked() ? "1" : "0", "why the run ends")) {
      asked |= text == "1";
    }
    if (!asked) return;
    throw Error(ErrorKind::Resumable,
                fmt::format("stopped on request after update {} of {}; {} is complete. Continue with "
                            "--resume_from_checkpoint last.",
                            end.update, end.total_updates, checkpoints.newest().string()));
  }

  /// Puts the best model in place of the last, where that is asked for and another.
  std::optional<int64_t> take_best(const train::LoopState& end) {
    const std::optional<int64_t> best = records_->best_update();
    if (!setup_.evaluation.load_best_model_at_end || !best || *best == end.update) return std::nullopt;
    const checkpoint::CheckpointReader reader(folder_ / checkpoint::checkpoint_name(*best));
    trainer_.replace_masters([&](const shard::OwnedState& what, std::span<float> out) {
      reader.read(trainer_.layout().spec(what.param).name, what.state, what.begin, out);
    });
    return best;
  }

  train::NamedMetrics evaluate() {
    link_.phase("evaluate");
    train::NamedMetrics all = setup_.evaluate(trainer_.params());
    progress_->say(fmt::format("update {}: {}", trainer_.cursor().update, metrics_line(all)));
    return all;
  }

  train::NamedMetrics evaluate_result(const TrainingEnd& end) {
    if (!setup_.evaluate) return {};
    if (!end.best_update && last_evaluated_.update == end.state.update) return end.state.last_evaluation;
    link_.phase("evaluate");
    train::NamedMetrics all = setup_.evaluate(trainer_.params());
    records_->append(end.state, all);
    say(fmt::format("the saved model (update {}): {}", end.best_update.value_or(end.state.update), metrics_line(all)));
    return all;
  }

  void save(const TrainingEnd& end) {
    link_.phase("save the model");
    trainer_.finish();
    save_result(trainer_, setup_.model, setup_.checkpoints.save_optimizer_state, results_of(end.totals), output_);
    if (output_ == nullptr) return;
    metrics::write_trainer_state(output_->path(), records_->at(end.state));
    if (!end.evaluation.empty()) write_file_atomically(output_->path() / "eval_results.json", metrics_json(end.evaluation));
  }

  /// A start that found nothing to train leaves the results of the one that trained.
  std::string results_of(const RunTotals& totals) const {
    const std::filesystem::path file = folder_ / "train_results.json";
    const bool keeps = totals.num_updates == 0 && output_ != nullptr && std::filesystem::exists(file);
    return keeps ? read_file(file) : results_json(totals);
  }

  CheckpointSetup checkpoint_setup() const {
    CheckpointSetup setup;
    setup.output = folder_;
    setup.model = setup_.model;
    setup.total_limit = setup_.checkpoints.save_total_limit;
    setup.only_model = setup_.checkpoints.save_only_model;
    setup.run_json = run_json_;
    setup.resumed_from = done_;
    if (rate_) setup.schedule = &rate_->schedule();
    return setup;
  }

  RecordsOptions records_options() const {
    RecordsOptions records;
    const bool save_best = setup_.checkpoints.save_strategy == "best";
    if (output_ != nullptr && (setup_.train.report_to == "tensorboard" || setup_.train.report_to == "all")) {
      records.tensorboard = setup_.train.logging_dir ? std::filesystem::path(*setup_.train.logging_dir)
                                                     : metrics::event_folder_now(output_folder(setup_.train));
    }
    records.args_json = run_json_;
    records.model_config_json = read_file(std::filesystem::path(setup_.model.source) / "config.json");
    records.metric_for_best_model = best_metric_name(setup_.evaluation, save_best || setup_.metric_schedule);
    records.greater_is_better = setup_.evaluation.greater_is_better;
    records.save_best = save_best;
    if (setup_.evaluation.early_stopping_patience) {
      records.early_stopping = {.patience = *setup_.evaluation.early_stopping_patience,
                                .threshold = setup_.evaluation.early_stopping_threshold};
    }
    return records;
  }

  const TrainingRunSetup& setup_;
  train::Trainer& trainer_;
  comm::Communicator& comm_;
  launch::WorkerLink& link_;
  checkpoint::OutputFolder* output_;
  std::filesystem::path folder_;
  std::optional<Resumed> resumed_;
  std::string run_json_;
  std::optional<int64_t> done_;               ///< updates, by the run that is continued
  std::optional<Records> records_;
  std::optional<Progress> progress_;
  std::optional<RateFromMetric> rate_;
  LastEvaluated last_evaluated_;
};

}  // namespace

TrainingEnd run_training(const TrainingRunSetup& setup, train::Trainer& trainer, comm::Communicator& comm,
                         launch::WorkerLink& link, checkpoint::OutputFolder* output,
                         const std::function<void(Records&, const train::LoopState&)>& at_the_end) {
  link.phase("look for a checkpoint to continue");
  return TrainingRun(setup, trainer, comm, link, output).run(at_the_end);
}

}  // namespace lockstep::recipes
