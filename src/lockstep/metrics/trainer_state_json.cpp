#include "lockstep/base/error.h"
#include "lockstep/metrics/trainer_state.h"

#include <nlohmann/json.hpp>

namespace lockstep::metrics {
namespace {

using Json = nlohmann::json;  // its objects are sorted by key

constexpr const char* kFileName = "trainer_state.json";
constexpr const char* kControl = "TrainerControl";
constexpr const char* kEarlyStopping = "EarlyStoppingCallback";

struct ValueToJson {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(const JsonText& value) const { return Json::parse(value.text); }
  template <class Value>
  Json operator()(const Value& value) const {
    return value;
  }
};

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json entry_to_json(const LogEntry& entry) {
  Json json = Json::object();
  for (const auto& [key, value] : entry) json[key] = std::visit(ValueToJson{}, value);
  return json;
}

Json callbacks_to_json(const TrainerState& state) {
  Json callbacks = Json::object();
  for (const auto& [name, text] : state.other_callbacks) callbacks[name] = Json::parse(text);
  const TrainerControl& control = state.control;
  callbacks[kControl] = {{"args",
                          {{"should_epoch_stop", control.should_epoch_stop},
                           {"should_evaluate", control.should_evaluate},
                           {"should_log", control.should_log},
                           {"should_save", control.should_save},
                           {"should_training_stop", control.should_training_stop}}},
                         {"attributes", Json::object()}};
  if (state.early_stopping) {
    callbacks[kEarlyStopping] = {{"args",
                                  {{"early_stopping_patience", state.early_stopping->patience},
                                   {"early_stopping_threshold", state.early_stopping->threshold}}},
                                 {"attributes", {{"early_stopping_patience_counter", state.early_stopping->counter}}}};
  }
  return callbacks;
}

/// Python's json writes NaN, Infinity and -Infinity, which are not JSON.
std::string without_python_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    size_t skipped = 0;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
      if (skipped == 0 && text.substr(i).starts_with(word)) skipped = word.size();
    }
    if (skipped == 0) {
      out += c;
    } else {
      out += "null";
      i += skipped - 1;
    }
  }
  return out;
}

LogValue value_from_json(const Json& json) {
  if (json.is_null()) return std::monostate{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return JsonText{json.dump()};
}

/// Reads fields of one object; null and absent leave the target as it is.
class StateReader {
 public:
  StateReader(const Json& json, std::string_view where) : json_(json), where_(where) {
    if (!json.is_object()) throw Error::data("{}: is not a mapping. Take trainer_state.json of another checkpoint.", where_);
  }
  template <class Value>
  void operator()(const char* key, Value& target) const {
    read(key, [&](const Json& value) { target = value.get<Value>(); });
  }
  template <class Value>
  void operator()(const char* key, std::optional<Value>& target) const {
    read(key, [&](const Json& value) { target = value.get<Value>(); });
  }
  /// Calls `take` with the value of `key`, if there is one.
  template <class Take>
  void read(const char* key, Take take) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return;
    try {
      take(*found);
    } catch (const Json::exception&) {
      throw Error::data("{}: {} has an unexpected value. Take trainer_state.json of another checkpoint.", where_, key);
    }
  }

 private:
  const Json& json_;
  std::string_view where_;
};

void read_callbacks(const Json& callbacks, std::string_view where, TrainerState& state) {
  for (const auto& [name, value] : callbacks.items()) {
    if (name == kControl) {
      const StateReader read(value.at("args"), where);
      read("should_epoch_stop", state.control.should_epoch_stop);
      read("should_evaluate", state.control.should_evaluate);
      read("should_log", state.control.should_log);
      read("should_save", state.control.should_save);
      read("should_training_stop", state.control.should_training_stop);
    } else if (name == kEarlyStopping && value.is_object()) {  // a list if there were several
      EarlyStopping& stopping = state.early_stopping.emplace();
      const StateReader args(value.at("args"), where), attributes(value.at("attributes"), where);
      args("early_stopping_patience", stopping.patience);
      args("early_stopping_threshold", stopping.threshold);
      attributes("early_stopping_patience_counter", stopping.counter);
    } else {
      state.other_callbacks[name] = value.dump();
    }
  }
}

LogEntry entry_from_json(const Json& json) {
  LogEntry entry;
  for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
    entry.emplace_back(key, value_from_json(value));
  }
  return entry;
}

}  // namespace

std::string to_json(const TrainerState& state) {
  Json history = Json::array();
  for (const LogEntry& entry : state.log_history) history.push_back(entry_to_json(entry));
  const Json json = {{"best_global_step", or_null(state.best_global_step)},
                     {"best_metric", or_null(state.best_metric)},
                     {"best_model_checkpoint", or_null(state.best_model_checkpoint)},
                     {"epoch", state.epoch},
                     {"eval_steps", state.eval_steps},
                     {"global_step", state.global_step},
                     {"is_hyper_param_search", state.is_hyper_param_search},
                     {"is_local_process_zero", state.is_local_process_zero},
                     {"is_world_process_zero", state.is_world_process_zero},
                     {"log_history", history},
                     {"logging_steps", state.logging_steps},
                     {"max_steps", state.max_steps},
                     {"num_input_tokens_seen", state.num_input_tokens_seen},
                     {"num_train_epochs", state.num_train_epochs},
                     {"save_steps", state.save_steps},
                     {"stateful_callbacks", callbacks_to_json(state)},
                     {"total_flos", state.total_flos},
                     {"train_batch_size", or_null(state.train_batch_size)},
                     {"trial_name", nullptr},
                     {"trial_params", nullptr}};
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

TrainerState trainer_state_from_json(std::string_view text, std::string_view where) {
  const Json json = Json::parse(without_python_numbers(text), nullptr, false);
  if (json.is_discarded()) {
    throw Error::data("{}: is not JSON. It was cut or edited: take another checkpoint.", where);
  }
  TrainerState state;
  const StateReader read(json, where);
  read("best_global_step", state.best_global_step);
  read("best_metric", state.best_metric);
  read("best_model_checkpoint", state.best_model_checkpoint);
  read("epoch", state.epoch);
  read("eval_steps", state.eval_steps);
  read("global_step", state.global_step);
  read("is_hyper_param_search", state.is_hyper_param_search);
  read("is_local_process_zero", state.is_local_process_zero);
  read("is_world_process_zero", state.is_world_process_zero);
  read("logging_steps", state.logging_steps);
  read("max_steps", state.max_steps);
  read("num_input_tokens_seen", state.num_input_tokens_seen);
  read("num_train_epochs", state.num_train_epochs);
  read("save_steps", state.save_steps);
  read("total_flos", state.total_flos);
  read("train_batch_size", state.train_batch_size);
  read.read("log_history", [&](const Json& history) {
    for (const Json& entry : history.get_ref<const Json::array_t&>()) state.log_history.push_back(entry_from_json(entry));
  });
  read.read("stateful_callbacks", [&](const Json& callbacks) {
    (void)callbacks.get_ref<const Json::object_t&>();
    read_callbacks(callbacks, where, state);
  });
  return state;
}

void write_trainer_state(const fs::path& folder, const TrainerState& state) {
  write_file_atomically(folder / kFileName, to_json(state));
}

TrainerState read_trainer_state(const fs::path& folder) {
  const fs::path path = folder / kFileName;
  return trainer_state_from_json(read_file(path), path.string());
}

}  // namespace lockstep::metrics
