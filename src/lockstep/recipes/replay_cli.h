#pragma once

#include "lockstep/options/environment.h"
#include "lockstep/options/resolve.h"
#include "lockstep/recipes/replay_options.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

/// `lockstep replay` up to the point where workers start. Torch-free: the front program and the worker link it.
namespace lockstep::recipes {

struct ParsedReplay {
  std::string run;                            ///< the output folder of a run
  ReplayOptions options;
  options::Origins origins;
  options::Words notes;                       ///< one line each, for the user
  options::EnvironmentVariables environment;  ///< of a config file
  bool dry_run = false;
  std::optional<std::string> help;            ///< print this and stop
};

/// `args`: the words after `lockstep replay`. Throws Error{Usage} that lists all problems.
ParsedReplay parse_replay(std::span<const std::string> args, const options::Environment& environment);

/// What the workers are told: to do what the run did, with the launch options of the replay.
struct ReplayJob {
  std::string command;         ///< "sft" or "classify"
  std::string run_file;        ///< for load_sft or load_classify
  std::string resolved;        ///< for --dry_run: the options with their origins
  std::string model_folder;    ///< as the run was told
  int64_t update = 0;          ///< the last one
};
/// The run.json of those who computed the update: of the first complete checkpoint from the update on (a run that was resumed
/// may have changed what does not define it), else the run's own.
std::filesystem::path record_of_update(const std::filesystem::path& run, int64_t update);
/// Reads the run's records. The options are those of record_of_update(). Throws Error{Data} for a folder of no run, and what
/// the readers throw.
ReplayJob prepare_replay(const ParsedReplay& parsed, const options::Page& page);

/// How a worker is told of it, beside its run file.
struct ReplayRequest {
  std::filesystem::path run;
  int64_t update = 0;
  std::optional<std::string> checkpoint;      ///< a folder, or "start"
};
options::Words worker_words(const ReplayRequest& request);
/// The inverse, of a worker's words; nothing when they ask for no replay.
std::optional<ReplayRequest> replay_request(std::span<const std::string> words);

}  // namespace lockstep::recipes
