#include "lockstep/recipes/classify_cli.h"

#include "lockstep/base/error.h"
#include "lockstep/recipes/cli_checks.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::recipes {
namespace {

using options::Field;
using options::Fields;
using options::Origins;

/// Older name, today's name: the same kind of value, or an optional of it.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"evaluation_strategy", "eval_strategy"},
    {"warmup_ratio", "warmup_steps"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"task_name", "task"},
    {"text_column_names", "text_column"},
    {"label_column_name", "label_column"},
    {"train_split_name", "dataset_train_split"},
    {"validation_split_name", "dataset_validation_split"},
    {"test_split_name", "dataset_test_split"},
    {"torch_dtype", "dtype"},
};

/// An older flag that is one value of today's.
struct Meaning {
  std::string_view older, key, value;
};
constexpr Meaning kMeanings[] = {
    {"evaluate_during_training", "eval_strategy", "steps"},
    {"adafactor", "optim", "adafactor"},
    {"do_regression", "problem_type", "regression"},
};

/// What an older name's value is called today. All updates, as a ratio of 1 means them, are the largest share below 1: a
/// warmup_steps of 1 is one update.
std::string todays_value(std::string_view older, const std::string& shown) {
  return older == "warmup_ratio" && shown == "1" ? fmt::format("{}", std::nextafter(1.0, 0.0)) : shown;
}

class Mover {
 public:
  Mover(const Fields& fields, Origins& origins, options::Problems& problems, options::Words& notes)
      : fields_(fields), origins_(origins), problems_(problems), notes_(notes) {}

  void move(std::string_view older, std::string_view key, std::string_view text) {
    const Field& target = *options::find(fields_, key);
    const auto value = options::parse_value(target, text);
    LS_CHECK(value.has_value(), "{} = {}", key, text);
    const options::Origin origin = options::origin_of(origins_, older);
    if (is_given(origins_, key)) {
      if (*value == target.value()) return;
      problems_.add(fmt::format("{} and {} are two names of one option. Leave one out.",
                                options::value_with_origin(key, options::shown_value(target), options::origin_of(origins_, key)),
                                with_origin(origins_, older, shown_older(older))));
      return;
    }
    target.set(*value);
    origins_[std::string(key)] = origin;
    notes_.push_back(fmt::format("{} is an older name: today it is {} = {}.", with_origin(origins_, older, shown_older(older)),
                                 key, text));
  }

  std::string shown_older(std::string_view older) const {
    return options::shown_value(*options::find(fields_, older));
  }

 private:
  const Fields& fields_;
  Origins& origins_;
  options::Problems& problems_;
  options::Words& notes_;
};

}  // namespace

void apply_older_names(ClassifyOptions& options, Origins& origins, options::Problems& problems, options::Words& notes) {
  const Fields fields = options::collect(options);
  Mover mover(fields, origins, problems, notes);
  for (const auto& [older, key] : kRenamed) {
    if (is_given(origins, older)) mover.move(older, key, todays_value(older, mover.shown_older(older)));
  }
  for (const Meaning& meaning : kMeanings) {
    if (is_given(origins, meaning.older) && mover.shown_older(meaning.older) == "true") {
      mover.move(meaning.older, meaning.key, meaning.value);
    }
  }
}

}  // namespace lockstep::recipes
