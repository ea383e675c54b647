#pragma once

#include "lockstep/apps/commands.h"
#include "lockstep/launch/options.h"
#include "lockstep/options/environment.h"
#include "lockstep/options/resolve.h"

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// What the commands that train with lockstep's own workers have in common: from parsed options to a group of workers on
/// this node, and perhaps on others.
namespace lockstep::apps {

struct OwnCommand {
  std::string name;                            ///< "sft": the worker's first word
  const launch::LaunchOptions* launch = nullptr;
  const options::Origins* origins = nullptr;
  const options::EnvironmentVariables* environment = nullptr;
  std::vector<std::string> notes;
  bool dry_run = false;
  std::string resolved;                        ///< of a dry run: the options with their origins
  std::string run_file;                        ///< what the workers read
  std::vector<std::string> worker_words;       ///< more that they are told
  std::string output_dir;                      ///< empty: nothing is written
  /// Cheap checks that need no worker: a wrong path is told in milliseconds.
  std::function<void()> require_local_inputs;
};

/// Throws what launching throws; else the exit code.
int run_own_command(const OwnCommand& command, const Invocation& invocation, double started);

/// The program that computes, beside this one. Error{Environment} when it is missing.
std::filesystem::path worker_program();

/// Seconds since 1970: when the command began.
double unix_seconds();

/// The options' environment, with the nodes of a SLURM step.
options::Environment environment_of_step();

/// Error{Usage} for words that are not UTF-8, Error{Environment} when the current folder is gone.
void require_readable_words(const Invocation& invocation);
/// Error{Usage} when the result, or a checkpoint where the run `saves` such, would replace the model it comes from.
void require_another_output(const std::string& model, const std::string& output, bool overwrite, bool saves);

/// Throws Error{Data} unless it is a folder with a config.json.
void require_model_folder(const std::string& model);
/// Throws Error{Data} unless `path`, the value of `flag`, exists.
void require_data(const std::string& flag, const std::string& path);

}  // namespace lockstep::apps
