// From names and --lr_scheduler_kwargs to a Schedule.
#include "lockstep/base/error.h"
#include "lockstep/optim/arguments.h"
#include "lockstep/optim/options.h"
#include "lockstep/optim/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {
namespace {

using Kind = Schedule::Kind;

constexpr std::array kSchedules = {
    std::pair{"linear", Kind::Linear},
    std::pair{"cosine", Kind::Cosine},
    std::pair{"cosine_with_restarts", Kind::CosineWithRestarts},
    std::pair{"polynomial", Kind::Polynomial},
    std::pair{"constant", Kind::Constant},
    std::pair{"constant_with_warmup", Kind::ConstantWithWarmup},
    std::pair{"inverse_sqrt", Kind::InverseSqrt},
    std::pair{"reduce_lr_on_plateau", Kind::ReduceOnPlateau},
    std::pair{"cosine_with_min_lr", Kind::CosineWithMinLr},
    std::pair{"cosine_warmup_with_min_lr", Kind::CosineWarmupWithMinLr},
    std::pair{"warmup_stable_decay", Kind::WarmupStableDecay},
    std::pair{"greedy", Kind::Greedy},
};

struct NoArguments {
  template <class V>
  void visit(V&) {}
};

struct CosineArguments {
  double num_cycles = 0.5;
  template <class V>
  void visit(V& v) {
    v("num_cycles", num_cycles, "Waves.").above(0);
  }
};

struct RestartArguments {
  int64_t num_cycles = 1;
  template <class V>
  void visit(V& v) {
    v("num_cycles", num_cycles, "Hard restarts.").at_least(1);
  }
};

struct PolynomialArguments {
  double lr_end = 1e-7;
  double power = 1;
  template <class V>
  void visit(V& v) {
    v("lr_end", lr_end, "Learning rate at the end.").at_least(0);
    v("power", power, "Exponent.").above(0);
  }
};

struct InverseSqrtArguments {
  std::optional<int64_t> timescale;
  template <class V>
  void visit(V& v) {
    v("timescale", timescale, "Updates in which the rate falls to 1/sqrt(2).").at_least(1);
  }
};

struct MinLrArguments {
  double num_cycles = 0.5;
  std::optional<double> min_lr, min_lr_rate, warmup_lr_rate;
  template <class V>
  void visit(V& v) {
    v("num_cycles", num_cycles, "Waves.").above(0);
    v("min_lr", min_lr, "Floor, a learning rate.").at_least(0);
    v("min_lr_rate", min_lr_rate, "Floor, a share of the peak.").at_least(0).at_most(1);
  }
};

struct WarmupMinLrArguments : MinLrArguments {
  template <class V>
  void visit(V& v) {
    MinLrArguments::visit(v);
    v("warmup_lr_rate", warmup_lr_rate, "Where the warm-up begins, a share of the peak.").at_least(0).at_most(1);
  }
};

struct StableArguments {
  std::optional<int64_t> num_decay_steps, num_stable_steps;
  std::string warmup_type = "linear", decay_type = "cosine";
  double min_lr_ratio = 0, num_cycles = 0.5;
  template <class V>
  void visit(V& v) {
    v("num_decay_steps", num_decay_steps, "Updates of the decay.").at_least(0);
    v("num_stable_steps", num_stable_steps, "Updates at the peak.").at_least(0);
    v("warmup_type", warmup_type, "Shape of the warm-up.").choices({"linear", "cosine", "1-sqrt"});
    v("decay_type", decay_type, "Shape of the decay.").choices({"linear", "cosine", "1-sqrt"});
    v("min_lr_ratio", min_lr_ratio, "Floor, a share of the peak.").at_least(0).at_most(1);
    v("num_cycles", num_cycles, "Waves of a cosine decay.").above(0);
  }
};

/// What make_schedule was asked for.
struct Request {
  const std::string& name;
  const std::optional<std::string>& kwargs;
};

template <class Arguments>
Arguments arguments_of(const Request& request) {
  Arguments arguments;
  if (request.kwargs) {
    read_json_arguments(*request.kwargs, options::collect(arguments), {"lr_scheduler_kwargs", request.name});
  }
  return arguments;
}

double floor_of(const MinLrArguments& arguments, const Request& request, double peak) {
  if (arguments.min_lr.has_value() == arguments.min_lr_rate.has_value()) {
    throw Error::usage("lr_scheduler_type = {}: needs one of min_lr and min_lr_rate{}. Try --lr_scheduler_kwargs "
                       "'{{\"min_lr_rate\": 0.1}}'.", request.name, arguments.min_lr ? ", not both" : "");
  }
  if (arguments.min_lr_rate) return *arguments.min_lr_rate;
  if (!(peak > 0)) throw Error::usage("learning_rate = {}: min_lr of {} is a share of it. Use min_lr_rate.", peak, request.name);
  return *arguments.min_lr / peak;
}

void read_polynomial(const Request& request, double peak, Schedule& schedule) {
  const auto arguments = arguments_of<PolynomialArguments>(request);
  if (!(peak > arguments.lr_end)) {
    throw Error::usage("lr_scheduler_type = polynomial: lr_end = {} must be below learning_rate = {}. Try "
                       "--lr_scheduler_kwargs '{{\"lr_end\": 0}}'.", arguments.lr_end, peak);
  }
  schedule.peak = peak;
  schedule.lr_end = arguments.lr_end;
  schedule.power = arguments.power;
}

Schedule::Shape shape_of(const std::string& name) {
  return name == "linear" ? Schedule::Shape::Linear
         : name == "cosine" ? Schedule::Shape::Cosine
                            : Schedule::Shape::OneMinusSqrt;
}

void read_stable(const Request& request, Schedule& schedule) {
  const auto arguments = arguments_of<StableArguments>(request);
  if (!arguments.num_decay_steps) {
    throw Error::usage("lr_scheduler_type = warmup_stable_decay: needs num_decay_steps. Try --lr_scheduler_kwargs "
                       "'{{\"num_decay_steps\": {}}}'.", std::max<int64_t>(1, schedule.total_updates / 10));
  }
  schedule.decay_updates = *arguments.num_decay_steps;
  // Negative when warm-up and decay are longer than the run: the decay then begins part of the way down, as there.
  schedule.stable_updates = arguments.num_stable_steps.value_or(schedule.total_updates - schedule.warmup_updates -
                                                                schedule.decay_updates);
  schedule.warmup_shape = shape_of(arguments.warmup_type);
  schedule.decay_shape = shape_of(arguments.decay_type);
  schedule.min_factor = arguments.min_lr_ratio;
  schedule.num_cycles = arguments.num_cycles;
}

template <class Arguments>
void read_floor(const Request& request, double peak, Schedule& schedule) {
  const auto arguments = arguments_of<Arguments>(request);
  schedule.num_cycles = arguments.num_cycles;
  schedule.min_factor = floor_of(arguments, request, peak);
  schedule.warmup_factor = arguments.warmup_lr_rate;
}

}  // namespace

Schedule::Kind schedule_kind_from_name(const std::string& name) {
  std::vector<std::string_view> known;
  for (const auto& [known_name, kind] : kSchedules) {
    if (name == known_name) return kind;
    known.emplace_back(known_name);
  }
  throw Error::usage("lr_scheduler_type = '{}' is not known. Use one of {}.", name, fmt::join(known, ", "));
}

Schedule make_schedule(const OptimOptions& options, int64_t total_updates) {
  Schedule schedule;
  schedule.kind = schedule_kind_from_name(options.lr_scheduler_type);
  schedule.total_updates = total_updates;
  schedule.warmup_updates = warmup_updates(options.warmup_steps, total_updates);
  const double peak = options.learning_rate;
  const Request request{options.lr_scheduler_type, options.lr_scheduler_kwargs};
  switch (schedule.kind) {
    case Kind::Linear:
    case Kind::Constant:
    case Kind::ConstantWithWarmup:
      arguments_of<NoArguments>(request);
      break;
    case Kind::Cosine:
      schedule.num_cycles = arguments_of<CosineArguments>(request).num_cycles;
      break;
    case Kind::CosineWithRestarts:
      schedule.num_cycles = static_cast<double>(arguments_of<RestartArguments>(request).num_cycles);
      break;
    case Kind::Polynomial:
      read_polynomial(request, peak, schedule);
      break;
    case Kind::InverseSqrt: {
      const int64_t absent = schedule.warmup_updates > 0 ? schedule.warmup_updates : 10'000;
      schedule.timescale = arguments_of<InverseSqrtArguments>(request).timescale.value_or(absent);
      break;
    }
    case Kind::CosineWithMinLr:
      read_floor<MinLrArguments>(request, peak, schedule);
      break;
    case Kind::CosineWarmupWithMinLr:
      read_floor<WarmupMinLrArguments>(request, peak, schedule);
      break;
    case Kind::WarmupStableDecay:
      read_stable(request, schedule);
      break;
    case Kind::ReduceOnPlateau:
    case Kind::Greedy:
      break;
  }
  return schedule;
}

}  // namespace lockstep::optim
