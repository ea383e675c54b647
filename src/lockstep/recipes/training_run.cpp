#include "lockstep/recipes/training_run.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/recipes/profiler.h"
#include "lockstep/recipes/resume_checks.h"
#include "lockstep/recipes/saved_weights.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/train/flow.h"

#include <fmt/format.h>

#include <cmath>
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
        saved_weights_(trainer, setup.model.dtype),
        folder_(std::filesystem::absolute(output_folder(setup.train))),
        resumed_(find_resumed(folder_, setup.checkpoints.resume_from_checkpoint, setup.run_json,
                              [this](const std::filesystem::path& checkpoint) {
                                link_.phase("check the checkpoint");
                                require_whole(checkpoint, folder_, threads(), comm_);
                              })),
        run_json_(with_identity(setup.run_json, resumed_ ? resumed_->run_json : std::string())),
        done_(resumed_ ? std::optional(resumed_->cursor.update) : std::nullopt) {}

  TrainingEnd run(const std::function<void(Records&, const train::LoopState&)>& at_the_end) {
    if (is_done()) return leave_as_it_is();
    begin();
    records_.emplace(records_options(), resumed_ ? resumed_->state : metrics::TrainerState{});
    progress_.emplace(console_options(setup_.train, link_.environment(), trainer_.order().total_updates()), output_, link_,
                      done_);
    if (setup_.train.profile) {
      profiler_.emplace(*setup_.train.profile, profile_folder(folder_), trainer_, comm_,
                        [this](const std::string& line) { progress_->say(line); });
    }
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
    take_best(records_->best_update(), end);
    tell_of_no_best(end.state);
    saved_weights_.round(setup_.checkpoints.save_optimizer_state);
    end.evaluation = evaluate_result(end);
    if (at_the_end) at_the_end(*records_, end.state);
    save(end);
    return end;
  }

 private:
  int threads() const { return link_.environment().num_threads.value_or(available_cores()); }

  std::optional<metrics::EarlyStopping> early_stopping() const {
    const train::EvaluationOptions& wanted = setup_.evaluation;
    if (!wanted.early_stopping_patience) return std::nullopt;
    return metrics::EarlyStopping{.patience = *wanted.early_stopping_patience, .threshold = wanted.early_stopping_threshold};
  }

  /// Why no update follows the checkpoint that is continued; empty when some do.
  std::string nothing_to_train() const {
    if (!resumed_) return {};
    const int64_t total = trainer_.order().total_updates();
    if (*done_ >= total) return fmt::format("update {} of {} is done", *done_, total);
    const auto stopping = continued_stopping(early_stopping(), resumed_->state);
    if (!stopping || !stopping->is_spent()) return {};
    return fmt::format("early stopping ended the run at update {} of {}. To go on, raise --early_stopping_patience (now {}) or "
                       "leave it out", *done_, total, stopping->patience);
  }

  /// The same on every rank: rank 0 looks.
  bool is_done() {
    if (nothing_to_train().empty()) return false;
    const bool ended = comm_.rank() == 0 && has_ended(folder_, run_json_, *done_);
    return comm_.all_gather_text(ended ? "1" : "0", "whether the run has ended").front() == "1";
  }

  /// The result's files stay; the trainer holds what was saved.
  TrainingEnd leave_as_it_is() {
    say(fmt::format("  {:<12} {} (update {})", "continues", resumed_->folder.string(), *done_));
    say(fmt::format("  {:<12} nothing to train: {}", "", nothing_to_train()));
    say(fmt::format("  {:<12} the run has ended: {} is left as it is", "", folder_.string()));
    link_.phase("read the checkpoint");
    restore_weights(trainer_, *resumed_);
    TrainingEnd end;
    end.is_left = true;
    end.state.update = *done_;
    end.state.total_updates = trainer_.order().total_updates();
    end.state.updates_per_epoch = trainer_.order().updates_per_epoch();
    end.state.epoch = static_cast<double>(*done_) / static_cast<double>(end.state.updates_per_epoch);
    end.num_applied = trainer_.num_updates_applied();
    take_best(resumed_->state.best_global_step, end);
    saved_weights_.round(false);
    link_.phase("evaluate");
    if (setup_.evaluate) end.evaluation = setup_.evaluate(trainer_.params());
    return end;
  }

  bool writes_checkpoints() const { return setup_.checkpoints.save_strategy != "no"; }

  void say(const std::string& line) const {
    if (comm_.rank() == 0) fmt::print(stderr, "{}\n", line);
  }

  void begin() {
    if (setup_.train.profile && output_ != nullptr) require_writable_folder(profile_folder(folder_));
    if (setup_.metric_schedule) {
      rate_.emplace(*setup_.metric_schedule, setup_.evaluation.metric_for_best_model.value_or("loss"), trainer_);
      if (resumed_ && !resumed_->schedule.empty()) rate_->restore(resumed_->schedule, (resumed_->folder / "run.json").string());
    }
    if (!resumed_) {
      if (output_ != nullptr) start_records(*output_, run_json_);
      return;
    }
    link_.phase("read the checkpoint");
    if (nothing_to_train().empty() || setup_.checkpoints.save_optimizer_state) {
      restore(trainer_, *resumed_);
    } else {
      restore_weights(trainer_, *resumed_);
    }
    // What is done from here on is done with these options.
    if (output_ != nullptr) write_file_atomically(output_->path() / "run.json", run_json_);
    say(fmt::format("  {:<12} {} (update {})", "continues", resumed_->folder.string(), resumed_->cursor.update));
    for (const std::string& change : resumed_->changed) say(fmt::format("  {:<12} changed {}", "", change));
    if (rate_ && resumed_->schedule.empty()) {
      say(fmt::format("  {:<12} changed lr_scheduler_type: it begins here, with a learning rate of {:g}; the checkpoint has no state "
                      "of it", "", rate_->schedule().learning_rate()));
    }
    if (const std::string why = nothing_to_train(); !why.empty()) say(fmt::format("  {:<12} nothing to train: {}", "", why));
    warn_of_lost_best();
  }

  std::filesystem::path best_folder(int64_t update) const {
    std::vector<std::filesystem::path> folders{folder_};
    if (resumed_) folders.push_back(resumed_->folder.parent_path());
    return checkpoint_of_run(update, folders, run_json_);
  }

  void warn_of_lost_best() const {
    const std::optional<int64_t> best = resumed_->state.best_global_step;
    if (comm_.rank() != 0 || !setup_.evaluation.load_best_model_at_end || !best || *best == *done_) return;
    if (!best_folder(*best).empty()) return;
    log::warn("resume", "{} is gone, the best model so far. Unless a later evaluation is better, the last model is saved in its "
              "place. Put it back to have the best.", checkpoint::checkpoint_name(*best));
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
    parts.save = [&](const train::LoopState& state) {
      between_updates(profile::Kind::Checkpoint, [&] { checkpoints->save(state); });
    };
    parts.callbacks = {&*records_, &*progress_, &last_evaluated_};
    if (rate_) parts.callbacks.push_back(&*rate_);
    if (stop) parts.callbacks.push_back(&*stop);
    parts.callbacks.insert(parts.callbacks.end(), setup_.callbacks.begin(), setup_.callbacks.end());
    if (profiler_) parts.callbacks.push_back(&*profiler_);
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
    if (end.update >= end.total_updates || records_->stopped_early()) return;
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

  /// Puts the best model in place of the last, where that is asked for, another, and still there: a checkpoint that was removed
  /// or damaged is no reason to lose the run.
  void take_best(const std::optional<int64_t>& best, TrainingEnd& end) {
    if (!setup_.evaluation.load_best_model_at_end || !best || *best == end.state.update) return;
    link_.phase("read the best model");
    const std::string mine = comm_.rank() == 0 ? best_folder(*best).string() : std::string();
    const std::filesystem::path folder = comm_.all_gather_text(mine, "where the best model is").front();
    const std::string damage = folder.empty() ? "" : damage_of(folder, threads(), comm_);
    if (folder.empty() || !damage.empty()) {
      end.lost_best = fmt::format("{}, the best, is {}", checkpoint::checkpoint_name(*best), folder.empty() ? "gone" : "damaged");
      say(fmt::format("{}, so the last model (update {}) is saved{}", end.lost_best, end.state.update, damage));
      return;
    }
    const checkpoint::CheckpointReader reader(folder);
    trainer_.replace_masters([&](const shard::OwnedState& what, std::span<float> out) {
      reader.read_weights(trainer_.layout().spec(what.param).name, what.begin, out);
    });
    end.best_update = best;
  }

  void tell_of_no_best(const train::LoopState& end) const {
    if (!setup_.evaluation.load_best_model_at_end || records_->best_update()) return;
    say(fmt::format("load_best_model_at_end: no evaluation before the end gave {} to choose by (none was due, or all were NaN), so the "
                    "last model (update {}) is saved",
                    metrics::best_metric_key(setup_.evaluation.metric_for_best_model.value_or("loss")), end.update));
  }

  ConsoleMetrics console_metrics() const {
    return {.all = setup_.tells_all_metrics, .always = setup_.evaluation.metric_for_best_model.value_or("")};
  }

  void between_updates(profile::Kind kind, const std::function<void()>& work) {
    if (profiler_) return profiler_->between(kind, work);
    work();
  }

  train::NamedMetrics evaluate() {
    link_.phase("evaluate");
    train::NamedMetrics all;
    between_updates(profile::Kind::Evaluation, [&] { all = setup_.evaluate(trainer_.params()); });
    progress_->say(fmt::format("update {}: {}", trainer_.cursor().update, metrics_line(all, console_metrics())));
    return all;
  }

  train::NamedMetrics evaluate_result(const TrainingEnd& end) {
    if (!setup_.evaluate) return {};
    const bool is_rounded = setup_.model.dtype != at::kFloat;
    if (!end.best_update && !is_rounded && last_evaluated_.update == end.state.update) return end.state.last_evaluation;
    link_.phase("evaluate");
    train::NamedMetrics all = setup_.evaluate(trainer_.params());
    // A run that was killed after its last checkpoint has it.
    if (end.best_update || !records_->has_evaluation(end.state.update)) records_->append(end.state, all);
    say(fmt::format("the saved model (update {}{}): {}", end.best_update.value_or(end.state.update),
                    is_rounded ? ", in " + checkpoint::dtype_name(setup_.model.dtype) : "",
                    metrics_line(all, console_metrics())));
    return all;
  }

  void save(const TrainingEnd& end) {
    link_.phase("save the model");
    trainer_.finish();
    const bool saves_masters = setup_.checkpoints.save_optimizer_state;
    if (saves_masters) saved_weights_.put_back();
    save_result(trainer_, setup_.model, saves_masters, results_of(end.totals), output_);
    if (saves_masters) saved_weights_.round(false);
    if (output_ == nullptr) return;
    metrics::write_trainer_state(output_->path(), records_->at(end.state));
    if (!end.evaluation.empty()) write_file_atomically(output_->path() / "eval_results.json", metrics_json(end.evaluation));
    if (setup_.after_save) setup_.after_save();
    mark_ended(output_->path(), run_json_, end.state.update);
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
    // A folder for TensorBoard's files is a wish for them.
    const std::string report_to = setup_.train.report_to.value_or(setup_.train.logging_dir ? "tensorboard" : "none");
    if (output_ != nullptr && report_to != "none") {
      records.tensorboard = setup_.train.logging_dir ? std::filesystem::path(*setup_.train.logging_dir)
                                                     : metrics::event_folder_now(output_folder(setup_.train));
    }
    records.args_json = run_json_;
    records.model_config_json = read_file(std::filesystem::path(setup_.model.source) / "config.json");
    records.metric_for_best_model = best_metric_name(setup_.evaluation, save_best || setup_.metric_schedule);
    records.greater_is_better = setup_.evaluation.greater_is_better;
    records.save_best = save_best;
    records.flow = flow_of(setup_, trainer_.order().total_updates());
    records.early_stopping = early_stopping();
    return records;
  }

  const TrainingRunSetup& setup_;
  train::Trainer& trainer_;
  comm::Communicator& comm_;
  launch::WorkerLink& link_;
  checkpoint::OutputFolder* output_;
  SavedWeights saved_weights_;
  std::filesystem::path folder_;
  std::optional<Resumed> resumed_;
  std::string run_json_;
  std::optional<int64_t> done_;               ///< updates, by the run that is continued
  std::optional<Records> records_;
  std::optional<Progress> progress_;
  std::optional<Profiler> profiler_;
  std::optional<RateFromMetric> rate_;
  LastEvaluated last_evaluated_;
};

}  // namespace

std::string trained_words(const TrainingEnd& end) {
  const int64_t all = end.state.update, skipped = all - end.num_applied, here = end.totals.num_updates;
  const double loss = end.totals.last.loss;
  // A run that was continued computed the last of them only.
  std::string text = here == all   ? fmt::format("Trained {} {}", all, all == 1 ? "update" : "updates")
                     : here == 1   ? fmt::format("Trained update {} of {}", all, end.state.total_updates)
                                   : fmt::format("Trained updates {} to {} of {}", all - here + 1, all, end.state.total_updates);
  if (2 * skipped > all) {
    text = fmt::format("Only {} of {} updates were applied, {} SKIPPED (not finite): the model is hardly trained; lower "
                       "--learning_rate, or look at the data", end.num_applied, all, skipped);
  } else if (skipped > 0) {
    text += fmt::format(", {} of {} SKIPPED (not finite)", skipped, here == all ? "them" : "the whole run");
  }
  return text + fmt::format("{} in {}{}", skipped > 0 ? "," : "", duration_text(end.totals.seconds),
                            std::isfinite(loss) ? fmt::format(" (last loss {:.4f})", loss) : " (the last was skipped and has no loss)");
}

std::string best_words(const TrainingEnd& end) {
  if (!end.lost_best.empty()) return fmt::format(", the last of them: {}", end.lost_best);
  return end.best_update ? fmt::format(", the best of them (update {})", *end.best_update) : "";
}

TrainingEnd run_training(const TrainingRunSetup& setup, train::Trainer& trainer, comm::Communicator& comm,
                         launch::WorkerLink& link, checkpoint::OutputFolder* output,
                         const std::function<void(Records&, const train::LoopState&)>& at_the_end) {
  link.phase("look for a checkpoint to continue");
  return TrainingRun(setup, trainer, comm, link, output).run(at_the_end);
}

}  // namespace lockstep::recipes
