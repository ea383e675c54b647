#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/classify.h"
#include "lockstep/options/environment.h"
#include "lockstep/options/resolve.h"
#include "lockstep/recipes/classify_options.h"

/// `lockstep classify` up to the point where workers start. Torch-free: the front program and the worker link it.
namespace lockstep::recipes {

struct ParsedClassify {
  ClassifyOptions options;
  options::Origins origins;
  options::Words notes;                       ///< one line each, for the user
  options::EnvironmentVariables environment;  ///< of the config file; set them before anything else
  bool dry_run = false;
  int64_t dry_run_processes = 1;              ///< of all nodes; set in the worker alone
  std::optional<std::string> help;            ///< print this and stop; the rest holds defaults then
};

/// `args`: the words after `lockstep classify`. Throws Error{Usage} that lists all problems with the flags.
ParsedClassify parse_classify(std::span<const std::string> args, const options::Environment& environment);

/// For --dry_run: what was given, then all defaults, with origins.
std::string resolved_classify_text(const ParsedClassify& parsed, const options::Page& page);

/// The file that the front program writes and the workers read: options and origins, numbers exact.
std::string dump_classify(const ParsedClassify& parsed);
/// The inverse; `where` names the text in errors. Notes, environment and help are empty.
ParsedClassify load_classify(std::string_view text, std::string_view where);

/// The section of docs/options.md.
std::string classify_markdown();

/// What the run does. Without any of do_train, do_eval and do_predict: trains if there is data to train on, evaluates what
/// there is to evaluate on, and predicts if a test file or split is named. An eval_strategy evaluates too.
struct ClassifyWork {
  data::Wanted train = data::Wanted::No, validation = data::Wanted::No, test = data::Wanted::No;
};
ClassifyWork work_of(const ClassifyOptions& options);

/// Moves the values of older names to where they belong, with their origins and one note each. Two names of one thing
/// with different values are a problem.
void apply_older_names(ClassifyOptions& options, options::Origins& origins, options::Problems& problems,
                       options::Words& notes);

}  // namespace lockstep::recipes
