#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/launch/options.h"
#include "lockstep/options/environment.h"
#include "lockstep/options/field.h"
#include "lockstep/options/value.h"
#include "lockstep/train/options.h"

/// What the commands that train check of their options, beyond each one by itself. Torch-free.
namespace lockstep::recipes {

bool is_given(const options::Origins& origins, std::string_view key);

/// "learning_rate = -1 (run.yaml:14)".
template <class T>
std::string with_origin(const options::Origins& origins, std::string_view key, const T& value) {
  return options::value_with_origin(key, fmt::format("{}", value), options::origin_of(origins, key));
}

/// --global_batch_size fixes the product; what else is given of its factors must agree.
void check_batch(const train::TrainOptions& train, const launch::LaunchOptions& launch, const options::Origins& origins,
                 const options::Environment& environment, options::Problems& problems);

/// accelerate's words beside torchrun's: two names of one thing must agree.
void check_launch(const launch::LaunchOptions& launch, const options::Origins& origins, options::Problems& problems);

/// Also expands a tilde.
void check_output(train::TrainOptions& train, const options::Origins& origins, options::Problems& problems);

void check_duration(const train::TrainOptions& train, const options::Origins& origins, options::Problems& problems,
                    options::Words& notes);

/// What a run that ends in `output` would replace of the model it starts from, by whatever path: its folder, or the checkpoint
/// of `output` that it lies in. `saves`: the run writes checkpoints.
enum class Replaced { Nothing, Model, Checkpoint };
Replaced replaced_by_run(const std::filesystem::path& model, const std::filesystem::path& output, bool saves);

struct CommandExample {
  std::string_view purpose;
  std::string_view command;
};

/// For help pages. Long commands are broken so that a shell takes them as they stand.
std::string example_lines(std::span<const CommandExample> examples, const options::Page& page);

}  // namespace lockstep::recipes
