#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::train {

/// What is saved and when, and what a run continues from. Members are named as the flags of transformers; the initialisers
/// are its defaults, except those marked ours. Written in the words of options/field.h.
struct CheckpointOptions {
  std::string save_strategy = "steps";
  double save_steps = 500;
  std::optional<int64_t> save_total_limit;
  bool save_only_model = false;
  std::optional<std::string> resume_from_checkpoint;
  bool save_optimizer_state = false;  ///< ours

  bool save_on_each_node = false;
  bool enable_jit_checkpoint = false;
  bool ignore_data_skip = false;
  bool restore_callback_states_from_checkpoint = false;
  bool push_to_hub = false;
  std::optional<std::string> hub_token;
  std::optional<bool> hub_private_repo;
  std::optional<std::string> hub_model_id;
  std::string hub_strategy = "every_save";
  bool hub_always_push = false;
  std::optional<std::string> hub_revision;

  template <class V>
  void visit(V& v) {
    v.group("Saving");
    v("save_strategy", save_strategy,
      "When checkpoints are written, best: when an evaluation is better; the trained model is always saved at the end.")
        .choices({"no", "steps", "epoch", "best"});
    v("save_steps", save_steps, "Updates between checkpoints; below 1 a share of all updates.").unit("updates").above(0);
    v("save_total_limit", save_total_limit, "Checkpoints to keep; the best, the newest and the one resumed from always stay.")
        .unset("all").at_least(1);
    v("save_only_model", save_only_model, "Checkpoints without optimizer state: smaller, and nothing can be resumed.");
    v("resume_from_checkpoint", resume_from_checkpoint,
      "Continue from a checkpoint: last, or its folder; any number of processes.").unset("start anew");
    v("save_optimizer_state", save_optimizer_state, "Also write float32 masters and moments with the trained model.");
    v("save_on_each_node", save_on_each_node, "Save on every machine.")
        .no_object("all machines write into one output folder");
    v("enable_jit_checkpoint", enable_jit_checkpoint, "A checkpoint on SIGTERM.").no_object("it is always taken");
    v("ignore_data_skip", ignore_data_skip, "Resume at the start of the data.")
        .refused("a resumed run goes on where it stopped, which takes no time", "Leave it out.");
    v("restore_callback_states_from_checkpoint", restore_callback_states_from_checkpoint, "Resume callbacks.")
        .no_object("what early stopping has seen is always restored");
    visit_hub(v);
  }

 private:
  static constexpr const char* kNoHub = "lockstep sends nothing anywhere";

  template <class V>
  void visit_hub(V& v) {
    v("push_to_hub", push_to_hub, "Upload the model.")
        .refused(kNoHub, "Leave it out and upload the output folder afterwards (hf upload REPO OUTPUT_DIR).");
    v("hub_token", hub_token, "Token for the upload.").secret().no_object(kNoHub);
    v("hub_private_repo", hub_private_repo, "Upload to a private repository.").no_object(kNoHub);
    v("hub_model_id", hub_model_id, "Name of the upload.").no_object(kNoHub);
    v("hub_strategy", hub_strategy, "When to upload.").no_object(kNoHub);
    v("hub_always_push", hub_always_push, "Upload even while one is going on.").no_object(kNoHub);
    v("hub_revision", hub_revision, "Branch of the upload.").no_object(kNoHub);
  }
};

}  // namespace lockstep::train
