// Events and control flags: shows what happens, evaluates early, and stops when the loss is low enough.
//   ./callbacks MODEL DATASET OUTPUT
#include <lockstep/lockstep.h>

#include <iostream>

namespace {

class Watcher final : public lockstep::TrainerCallback {
 public:
  void on_train_begin(const lockstep::TrainerState& state, lockstep::TrainerControl&) override {
    say(state, "train_begin, " + std::to_string(state.max_steps) + " updates planned");
  }
  void on_epoch_begin(const lockstep::TrainerState& state, lockstep::TrainerControl&) override { say(state, "epoch_begin"); }
  void on_step_end(const lockstep::TrainerState& state, lockstep::TrainerControl& control) override {
    // The strategies of the arguments say when these are due; a callback may add to that, or take it back.
    if (state.global_step == 2) control.should_log = control.should_evaluate = true;
    if (state.global_step == 3) control.should_epoch_stop = true;
  }
  void on_log(const lockstep::TrainerState& state, lockstep::TrainerControl&) override {
    say(state, "log, loss " + std::string(state.logs.at("loss") > 0 ? "above 0" : "0"));
  }
  void on_evaluate(const lockstep::TrainerState& state, lockstep::TrainerControl& control) override {
    say(state, "evaluate, " + std::to_string(state.metrics.size()) + " numbers");
    ++evaluations_;
    if (evaluations_ == 3) control.should_training_stop = true;
  }
  void on_save(const lockstep::TrainerState& state, lockstep::TrainerControl&) override { say(state, "save"); }
  void on_epoch_end(const lockstep::TrainerState& state, lockstep::TrainerControl&) override { say(state, "epoch_end"); }
  void on_train_end(const lockstep::TrainerState& state, lockstep::TrainerControl&) override {
    say(state, "train_end, " + std::to_string(state.log_history.size()) + " entries in log_history");
  }

 private:
  static void say(const lockstep::TrainerState& state, const std::string& what) {
    if (state.is_world_process_zero) std::cout << "step " << state.global_step << ": " << what << std::endl;
  }
  int evaluations_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw lockstep::Error(lockstep::ErrorKind::Usage, "callbacks MODEL DATASET OUTPUT");
  const auto tokenizer = lockstep::Tokenizer::from_pretrained(argv[1]);
  const auto tokenized = lockstep::load_dataset(argv[2]).map(
      tokenizer, {.text = "sentence1", .text_pair = "sentence2", .truncation = true, .max_length = 48});

  lockstep::TrainingArguments args;
  args.output_dir = argv[3];
  args.learning_rate = 1e-3;
  args.num_train_epochs = 10;
  args.eval_strategy = "epoch";
  args.save_strategy = "epoch";

  lockstep::Trainer trainer({.model = lockstep::SequenceClassifier::from_pretrained(argv[1]),
                             .args = args,
                             .train_dataset = tokenized["train"],
                             .eval_dataset = tokenized["validation"],
                             .callbacks = {std::make_shared<Watcher>()}});
  trainer.train();
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
