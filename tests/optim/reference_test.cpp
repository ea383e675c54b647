// Against what torch and transformers compute: tests/data/golden/optim.json, written by make_reference.py.
#include "lockstep/base/files.h"
#include "lockstep/optim/adafactor.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/metric_schedule.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::optim {
namespace {

using Json = nlohmann::json;
using Floats = std::vector<float>;

const Json& reference() {
  static const Json json = Json::parse(read_file(fs::path(LOCKSTEP_TEST_DATA) / "golden" / "optim.json"));
  return json;
}

std::string title(const Json& entry) { return entry.at("name").get<std::string>() + " " + entry.at("kwargs").dump(); }

TEST(ScheduleReference, EveryUpdateHasTransformersRate) {
  for (const Json& entry : reference().at("schedules")) {
    OptimOptions options;
    options.learning_rate = entry.at("learning_rate");
    options.lr_scheduler_type = entry.at("name");
    if (!entry.at("kwargs").empty()) options.lr_scheduler_kwargs = entry.at("kwargs").dump();
    options.warmup_steps = entry.at("warmup");
    const Schedule schedule = make_schedule(options, entry.at("total"));
    int64_t update = 1;
    for (const double rate : entry.at("rates")) {
      EXPECT_NEAR(options.learning_rate * schedule.factor(update), rate, 4 * 0x1p-53 * options.learning_rate)
          << title(entry) << " update " << update;
      ++update;
    }
  }
}

TEST(MetricScheduleReference, EveryEvaluationHasTheSameRate) {
  for (const Json& entry : reference().at("metric_schedules")) {
    const bool greedy = entry.at("name") == "greedy";
    MetricSchedule schedule(greedy ? Schedule::Kind::Greedy : Schedule::Kind::ReduceOnPlateau,
                            entry.at("kwargs").dump(), entry.at("learning_rate"));
    const auto rates = entry.at("rates").get<std::vector<double>>();
    EXPECT_TRUE(greedy || rates.front() != rates.back()) << "a reference in which nothing happens";
    for (size_t k = 0; k < rates.size(); ++k) {
      schedule.step(entry.at("metrics")[k]);
      EXPECT_EQ(schedule.learning_rate(), rates[k]) << title(entry) << " evaluation " << k;
    }
  }
}

/// One tensor, all of it in one piece, through the functions that shard/ calls.
struct Whole {
  std::vector<int64_t> shape;
  Floats master;
  std::map<std::string, Floats> states;

  void step(const OptimizerStep& step, const Floats& grad);
  void step_adafactor(const OptimizerStep& step, const Floats& grad);
};

void Whole::step(const OptimizerStep& step, const Floats& grad) {
  if (is_factored(step.rule)) return step_adafactor(step, grad);
  std::vector<std::span<float>> spans;
  for (const std::string& name : state_names(step.rule, false)) {
    Floats& state = states[name];
    state.resize(master.size(), 0);
    spans.emplace_back(state);
  }
  step_elements(step, master, spans, grad);
}

void Whole::step_adafactor(const OptimizerStep& step, const Floats& grad) {
  const auto& rule = std::get<AdafactorRule>(step.rule);
  Floats update(master.size());
  if (shape.size() < 2) {
    states["exp_avg_sq"].resize(master.size(), 0);
    average_vector_squares(states["exp_avg_sq"], grad, rule, step.step, 1);
    vector_update(update, grad, states["exp_avg_sq"], 1);
  } else {
    const MatrixShape matrix = MatrixShape::of(shape);
    std::vector<double> rows(static_cast<size_t>(matrix.num_rows())), columns(static_cast<size_t>(matrix.num_columns()));
    add_squares(grad, 0, matrix, 1, columns, rows);
    Floats& row = states[kRowState];
    Floats& column = states[kColumnState];
    row.resize(rows.size(), 0);
    column.resize(columns.size(), 0);
    average_squares(row, rows, matrix.cols, rule, step.step);
    average_squares(column, columns, matrix.rows, rule, step.step);
    factored_update(update, grad, 0, matrix, row_factors(row, matrix), column_factors(column), 1);
  }
  const double divisor = update_divisor(rule, sum_of_squares(update), static_cast<int64_t>(update.size()));
  apply_update(master, update, step.learning_rate, step.weight_decay, divisor);
}

/// Start and gradients of a shape.
const Json& problem_of(const Json& shape) {
  for (const Json& problem : reference().at("problems")) {
    if (problem.at("shape") == shape) return problem;
  }
  throw Error::data("no problem of shape {}", shape.dump());
}

double largest(const Floats& values) {
  double found = 0;
  for (const float value : values) found = std::max(found, std::abs(double{value}));
  return found;
}

TEST(OptimizerReference, TenStepsAreThoseOfTorch) {
  for (const Json& entry : reference().at("optimizers")) {
    OptimOptions options;
    options.optim = entry.at("optim");
    if (!entry.at("optim_args").empty()) options.optim_args = entry.at("optim_args");
    const std::string name = options.optim + " " + options.optim_args.value_or("") + " " + entry.at("shape").dump();
    OptimizerStep step{.rule = make_rule(options), .weight_decay = entry.at("weight_decay")};
    const Json& problem = problem_of(entry.at("shape"));
    Whole whole{entry.at("shape"), problem.at("start"), {}};
    const auto grads = problem.at("grads").get<std::vector<Floats>>();
    const double peak = problem.at("learning_rate");
    for (size_t k = 0; k < grads.size(); ++k) {
      step.learning_rate = peak * (1 - static_cast<double>(k) / static_cast<double>(grads.size()));
      step.step = static_cast<int64_t>(k) + 1;
      whole.step(step, grads[k]);
    }
    // Each step rounds the weight, the states and the direction a few times, and torch groups the operations another way:
    // at most 8 roundings of 2^-24 of the largest value of the tensor per step. A centered variance is a difference of
    // which at least a fifth stays in the first step (1 - 0.8), which makes its roundings 5 times as large.
    const double centered = name.find("centered") == std::string::npos ? 1 : 5;
    const double bound = static_cast<double>(grads.size()) * 8 * 0x1p-24 * centered;
    const auto want = entry.at("weight").get<Floats>();
    ASSERT_EQ(whole.master.size(), want.size());
    EXPECT_NE(whole.master, problem.at("start").get<Floats>());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(whole.master[i], want[i], bound * largest(want)) << name << " element " << i;
    }
    ASSERT_EQ(entry.at("state").size(), whole.states.size()) << name;
    for (const auto& [state, values] : entry.at("state").items()) {
      const auto reference_state = values.get<Floats>();
      ASSERT_TRUE(whole.states.contains(state)) << name << " " << state;
      for (size_t i = 0; i < reference_state.size(); ++i) {
        EXPECT_NEAR(whole.states[state][i], reference_state[i], bound * largest(reference_state))
            << name << " " << state << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::optim
