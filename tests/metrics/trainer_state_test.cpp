#include "lockstep/metrics/trainer_state.h"

#include "lockstep/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::metrics {
namespace {

using testing::HasSubstr;

TrainerState two_epochs() {
  TrainerState state;
  state.epoch = 2;
  state.global_step = 12;
  state.max_steps = 18;
  state.num_train_epochs = 3;
  state.logging_steps = 10;
  state.train_batch_size = 8;
  state.log_history = {{{"loss", 0.6944}, {"grad_norm", 0.4243}, {"learning_rate", 1e-5}, {"epoch", 1.0}, {"step", int64_t{6}}},
                       {{"eval_loss", 0.5}, {"eval_note", std::string("a \"b\" \xC3\xA9")}, {"eval_ok", true},
                        {"nothing", std::monostate{}}, {"list", JsonText{"[1,2.5]"}}, {"epoch", 2.0}, {"step", int64_t{12}}}};
  state.control.should_save = true;
  return state;
}

TEST(TrainerStateJson, IsTheTextThatPythonWrites) {
  TrainerState state = two_epochs();
  state.log_history.pop_back();
  state.early_stopping = EarlyStopping{3, 0.01, 1};
  EXPECT_EQ(to_json(state), R"({
  "best_global_step": null,
  "best_metric": null,
  "best_model_checkpoint": null,
  "epoch": 2.0,
  "eval_steps": 500,
  "global_step": 12,
  "is_hyper_param_search": false,
  "is_local_process_zero": true,
  "is_world_process_zero": true,
  "log_history": [
    {
      "epoch": 1.0,
      "grad_norm": 0.4243,
      "learning_rate": 1e-05,
      "loss": 0.6944,
      "step": 6
    }
  ],
  "logging_steps": 10,
  "max_steps": 18,
  "num_input_tokens_seen": 0,
  "num_train_epochs": 3,
  "save_steps": 500,
  "stateful_callbacks": {
    "EarlyStoppingCallback": {
      "args": {
        "early_stopping_patience": 3,
        "early_stopping_threshold": 0.01
      },
      "attributes": {
        "early_stopping_patience_counter": 1
      }
    },
    "TrainerControl": {
      "args": {
        "should_epoch_stop": false,
        "should_evaluate": false,
        "should_log": false,
        "should_save": true,
        "should_training_stop": false
      },
      "attributes": {}
    }
  },
  "total_flos": 0.0,
  "train_batch_size": 8,
  "trial_name": null,
  "trial_params": null
}
)");
}

TEST(TrainerStateJson, ComesBackAsItWas) {
  TrainerState state = two_epochs();
  state.best_metric = 0.1;
  state.best_global_step = 6;
  state.best_model_checkpoint = "out/checkpoint-6";
  state.early_stopping = EarlyStopping{2, 0.125, 1};
  state.other_callbacks["MyCallback"] = R"({"args":{"a":[1,2]},"attributes":{}})";
  state.num_input_tokens_seen = int64_t{1} << 60;
  const std::string text = to_json(state);
  const TrainerState back = trainer_state_from_json(text, "state");
  EXPECT_EQ(to_json(back), text);
  EXPECT_EQ(back.control, state.control);
  EXPECT_EQ(back.early_stopping, state.early_stopping);
  EXPECT_EQ(back.other_callbacks, state.other_callbacks);
  EXPECT_EQ(back.best_metric, 0.1);
  EXPECT_EQ(back.num_input_tokens_seen, int64_t{1} << 60);
  ASSERT_EQ(back.log_history.size(), 2U);
  LogEntry sorted = state.log_history[1];
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  EXPECT_EQ(back.log_history[1], sorted);
  for (const char c : text) EXPECT_GE(c, '\0') << "ASCII alone";
}

TEST(TrainerStateJson, ReadsWhatPythonWrites) {
  const TrainerState state = trainer_state_from_json(
      R"({"best_metric": -Infinity, "epoch": 1, "log_history": [{"loss": NaN, "note": "NaN \"Infinity", "step": 3}],
          "stateful_callbacks": {"EarlyStoppingCallback": [{"args": {}}], "TrainerControl": {"args": {}, "attributes": {}}},
          "new_in_6": 1})", "state");
  EXPECT_EQ(state.best_metric, std::nullopt);
  EXPECT_EQ(state.epoch, 1);
  ASSERT_EQ(state.log_history.size(), 1U);
  EXPECT_EQ(state.log_history[0][0], (std::pair<std::string, LogValue>{"loss", std::monostate{}}));
  EXPECT_EQ(state.log_history[0][1].second, LogValue{std::string("NaN \"Infinity")});
  EXPECT_EQ(state.early_stopping, std::nullopt);
  EXPECT_EQ(state.other_callbacks.count("EarlyStoppingCallback"), 1U);
}

TEST(TrainerStateJson, NotFiniteIsNull) {
  TrainerState state;
  state.log_history = {{{"grad_norm", std::nan("")}, {"loss", INFINITY}}};
  EXPECT_THAT(to_json(state), testing::AllOf(HasSubstr("\"grad_norm\": null"), HasSubstr("\"loss\": null")));
}

TEST(TrainerStateJson, NamesWhatIsWrong) {
  const auto error_from = [](std::string_view text) {
    try {
      trainer_state_from_json(text, "out/checkpoint-6/trainer_state.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  for (const char* text : {"", "{", "[]", "3", R"({"epoch": 1)", R"({"epoch": "one"})", R"({"log_history": {}})",
                           R"({"log_history": [3]})", R"({"global_step": true})", R"({"stateful_callbacks": []})",
                           R"({"stateful_callbacks": {"TrainerControl": 3}})",
                           R"({"stateful_callbacks": {"TrainerControl": {"args": []}}})",
                           R"({"stateful_callbacks": {"EarlyStoppingCallback": {}}})"}) {
    EXPECT_THAT(error_from(text), testing::AllOf(HasSubstr("out/checkpoint-6/trainer_state.json"), HasSubstr("another checkpoint")))
        << text;
  }
  EXPECT_THAT(error_from(R"({"log_history": [3]})"), HasSubstr("log_history"));
}

TEST(TrainerStateFile, IsWrittenAndRead) {
  const TempFolder folder("lockstep-state");
  write_trainer_state(folder.path(), two_epochs());
  EXPECT_EQ(to_json(read_trainer_state(folder.path())), to_json(two_epochs()));
  EXPECT_THROW(read_trainer_state(folder.path() / "none"), Error);
}

TEST(BestMetric, NameMayHaveThePrefix) {
  const std::vector<std::pair<std::string, double>> metrics = {{"eval_loss", 0.5}, {"eval_f1", 0.8}};
  EXPECT_EQ(metric_for_best(metrics, "f1"), 0.8);
  EXPECT_EQ(metric_for_best(metrics, "eval_f1"), 0.8);
  for (const char* name : {"runtime", "eval_runtime", "steps_per_second", "eval_samples_per_second_mm"}) {
    EXPECT_TRUE(depends_on_clock(name)) << name;
  }
  for (const char* name : {"loss", "eval_f1", "accuracy_mm"}) EXPECT_FALSE(depends_on_clock(name)) << name;
  try {
    metric_for_best(metrics, "accuracy");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("metric_for_best_model = accuracy"), HasSubstr("eval_loss, eval_f1")));
  }
}

TEST(BestMetric, GreaterIsBetterUnlessItIsALoss) {
  EXPECT_FALSE(greater_is_better("loss", {}));
  EXPECT_FALSE(greater_is_better("eval_my_loss", {}));
  EXPECT_TRUE(greater_is_better("f1", {}));
  EXPECT_TRUE(greater_is_better("log_loss_ratio", {}));
  EXPECT_TRUE(greater_is_better("loss", true));
  EXPECT_FALSE(greater_is_better("f1", false));
}

TEST(BestMetric, KeepsTheOlderOfEqualOnesAndNeverNaN) {
  TrainerState state;
  const auto note = [&](int64_t step, double value) {
    state.global_step = step;
    return note_metric(state, value, true);
  };
  EXPECT_FALSE(note(1, std::nan("")));
  EXPECT_EQ(state.best_metric, std::nullopt);
  EXPECT_TRUE(note(2, 0.5));
  EXPECT_FALSE(note(3, 0.5));
  EXPECT_FALSE(note(4, std::nan("")));
  EXPECT_TRUE(note(5, 0.6));
  EXPECT_FALSE(note(6, 0.1));
  EXPECT_EQ(state.best_metric, 0.6);
  EXPECT_EQ(state.best_global_step, 5);
  EXPECT_TRUE(note_metric(state, 0.1, false));
}

TEST(EarlyStopping, CountsEvaluationsThatDoNotImproveByMoreThanTheThreshold) {
  EarlyStopping stopping{2, 0.05, 0};
  std::optional<double> best;
  const auto evaluate = [&](double value) {
    const bool stop = note_evaluation(stopping, value, best, true);
    if (is_better(value, best, true)) best = value;
    return stop;
  };
  EXPECT_FALSE(evaluate(0.50)) << "the first";
  EXPECT_FALSE(evaluate(0.52)) << "better, not by enough";
  EXPECT_EQ(stopping.counter, 1);
  EXPECT_FALSE(evaluate(0.60));
  EXPECT_EQ(stopping.counter, 0);
  EXPECT_FALSE(evaluate(std::nan("")));
  EXPECT_TRUE(evaluate(0.62)) << "the second in a row";
  EXPECT_EQ(best, 0.62) << "the best is noted without the threshold";
}

TEST(EarlyStopping, ForLosses) {
  EarlyStopping stopping{1, 0, 0};
  EXPECT_FALSE(note_evaluation(stopping, 0.4, 0.5, false));
  EXPECT_TRUE(note_evaluation(stopping, 0.5, 0.4, false));
}

TEST(ConsoleEntry, IsTransformers) {
  EXPECT_EQ(console_entry({{"loss", 0.69444}, {"grad_norm", 0.424312}, {"learning_rate", 0.001}, {"epoch", 1.0 / 3}}),
            "{'loss': '0.6944', 'grad_norm': '0.4243', 'learning_rate': '0.001', 'epoch': '0.3333'}");
  EXPECT_EQ(console_entry({{"total_flos", 1e12}, {"step", int64_t{3}}, {"ok", true}, {"none", std::monostate{}},
                           {"text", std::string("it's")}, {"long", std::string(101, 'x')}}),
            "{'step': 3, 'ok': True, 'none': None, 'text': \"it's\", 'long': '<101 characters>'}");
  EXPECT_EQ(console_entry({}), "{}");
}

TEST(ConsoleNumber, HasFourDigits) {
  EXPECT_EQ(console_number(2e-5), "2e-05");
  EXPECT_EQ(console_number(123456), "1.235e+05");
  EXPECT_EQ(console_number(1234), "1234");
  EXPECT_EQ(console_number(1), "1");
  EXPECT_EQ(console_number(std::nan("")), "nan");
  EXPECT_EQ(console_number(-INFINITY), "-inf");
}

}  // namespace
}  // namespace lockstep::metrics
