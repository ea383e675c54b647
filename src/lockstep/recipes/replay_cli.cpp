#include "lockstep/recipes/replay_cli.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/options/help.h"
#include "lockstep/options/value.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/recipes/cli_checks.h"
#include "lockstep/recipes/replay_records.h"
#include "lockstep/recipes/sft_cli.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace lockstep::recipes {
namespace {

using options::Words;

constexpr std::string_view kCheckpointPrefix = "checkpoint-";

constexpr CommandExample kReplayExamples[] = {
    {"The updates from the last checkpoint to the last update:", "lockstep replay out"},
    {"From the newest checkpoint before update 120 to update 120, in another layout than the run's:",
     "lockstep replay out --update 120 --nproc_per_node 4"},
    {"From an earlier checkpoint, or from the run's beginning:", "lockstep replay out --update 120 --checkpoint out/checkpoint-50"},
    {"What would be done:", "lockstep replay out --update 120 --dry_run"},
};

std::string introduction_of_replay(const options::Page& page) {
  return "lockstep replay RUN [--update N]: compute updates of a run again and compare them with what it logged.\n"
         "RUN is the --output_dir of lockstep sft or lockstep classify; nothing in it is changed, and it may still be going on.\n"
         "Options, data and model are the run's, the layout is the one asked for here: a hash per block must come out as it was\n"
         "logged in metrics.jsonl. The first update that differs is named with its blocks; the exit code is 8 then.\n"
         "Paths are read as the run was given them: start it in the same folder.\n\n" +
         options::heading("Examples", page) + example_lines(kReplayExamples, page);
}

/// Whether the word after this flag is its value.
bool takes_next(const std::string& flag, const options::Fields& fields) {
  if (!flag.starts_with("--") || flag.find('=') != std::string::npos || flag.starts_with("--help")) return false;
  const std::string key = options::canonical_key(flag.substr(2));
  if (key == "dry_run") return false;
  const options::Field* field = options::find(fields, key);
  return field == nullptr || !options::is_boolean(*field);
}

/// Takes the words that are neither flags nor their values.
Words take_operands(Words& words, const options::Fields& fields) {
  Words operands, flags;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_flag = words[i].size() > 1 && words[i][0] == '-';
    (is_flag ? flags : operands).push_back(words[i]);
    if (is_flag && takes_next(words[i], fields) && i + 1 < words.size()) flags.push_back(words[++i]);
  }
  words = std::move(flags);
  return operands;
}

std::optional<int64_t> number_of_checkpoint(const std::string& name) {
  if (!name.starts_with(kCheckpointPrefix)) return std::nullopt;
  int64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + kCheckpointPrefix.size(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

nlohmann::json read_run(const std::string& text, const fs::path& record) {
  const auto refuse = [&](std::string_view what) {
    return Error::data("{}: {}, so it is not the record of a run that lockstep trained. Give the --output_dir of lockstep sft or "
                       "lockstep classify, as the run left it.", record.string(), what);
  };
  nlohmann::json run = nlohmann::json::parse(text, nullptr, false);
  if (!run.is_object()) throw refuse(run.is_discarded() ? "is no JSON" : "is no JSON object");
  const nlohmann::json command = run.value("command", nlohmann::json());
  if (command != "sft" && command != "classify") throw refuse("'command' is neither sft nor classify");
  const auto global = nlohmann::json::json_pointer("/run/global_batch_size");
  const bool has_batch = run.contains("run") && run["run"].is_object() && run.contains(global);
  if (!has_batch || !run.at(global).is_number_integer() || run.at(global).get<int64_t>() < 1) {
    throw refuse("'run.global_batch_size' is no number of samples");
  }
  return run;
}

/// The origins that `of` has under the keys of `fields`.
void take_origins(const options::Fields& fields, const options::Origins& of, options::Origins& into) {
  for (const options::Field& field : fields) {
    into.erase(field.spec.key);
    if (const auto found = of.find(field.spec.key); found != of.end()) into.insert(*found);
  }
}

/// The run's options, but for the layout.
template <class Parsed>
void replay_options_of(Parsed& run, const ParsedReplay& replay, int64_t global_batch_size, const fs::path& record) {
  run.options.launch = replay.options.launch;
  take_origins(options::collect(run.options.launch), replay.origins, run.origins);
  run.options.train.global_batch_size = global_batch_size;
  run.origins["global_batch_size"] = {options::Origin::Kind::File, record.string(), 0};
  run.options.checkpoints.resume_from_checkpoint.reset();
  run.origins.erase("resume_from_checkpoint");
}

}  // namespace

ParsedReplay parse_replay(std::span<const std::string> args, const options::Environment& environment) {
  ParsedReplay parsed;
  Words words(args.begin(), args.end());
  const options::Fields fields = options::collect(parsed.options);
  const Words operands = take_operands(words, fields);
  options::Resolved resolved = options::resolve(words, fields);
  if (resolved.help != options::Help::None) {
    parsed.help = options::help_text(fields, introduction_of_replay(environment.page), resolved.help, environment.page, "torchrun");
    return parsed;
  }
  if (operands.empty()) resolved.problems.add("No run is named. Give its --output_dir: lockstep replay out --update 120.");
  for (size_t i = 1; i < operands.size(); ++i) {
    resolved.problems.add(fmt::format("'{}' is one word too many: one run is replayed at a time.", operands[i]));
  }
  if (parsed.options.checkpoint && parsed.options.checkpoint->empty()) {
    resolved.problems.add("--checkpoint is empty. Give a checkpoint's folder, or start.");
  }
  if (resolved.problems.empty()) check_launch(parsed.options.launch, resolved.origins, resolved.problems);
  resolved.problems.throw_if_any();
  parsed.run = expand_user(operands.front());
  if (parsed.options.checkpoint) parsed.options.checkpoint = expand_user(*parsed.options.checkpoint);
  parsed.origins = std::move(resolved.origins);
  parsed.notes = std::move(resolved.notes);
  parsed.environment = std::move(resolved.environment);
  parsed.dry_run = resolved.dry_run;
  return parsed;
}

fs::path record_of_update(const fs::path& run, int64_t update) {
  fs::path record = run / "run.json";
  std::optional<int64_t> nearest;
  std::error_code problem;
  for (fs::directory_iterator it(run, problem), end; !problem && it != end; it.increment(problem)) {
    const auto number = number_of_checkpoint(it->path().filename().string());
    if (!number || *number < update || (nearest && *nearest <= *number)) continue;
    std::error_code ignored;  // a folder without a manifest is no checkpoint yet
    if (!fs::exists(it->path() / "manifest.json", ignored) || !fs::exists(it->path() / "run.json", ignored)) continue;
    nearest = number;
    record = it->path() / "run.json";
  }
  return record;
}

ReplayJob prepare_replay(const ParsedReplay& parsed, const options::Page& page) {
  const fs::path run = parsed.run;
  const fs::path metrics = run / "metrics.jsonl";
  std::error_code ignored;
  if (!fs::is_directory(run, ignored)) {
    throw Error::data("lockstep replay {}: {}. Give the --output_dir of a run.", parsed.run,
                      fs::exists(run, ignored) ? "is a file, not a folder" : "there is no such folder");
  }
  for (const fs::path& file : {run / "run.json", metrics}) {
    if (fs::exists(file, ignored)) continue;
    throw Error::data("lockstep replay {}: {} is missing, so this is not the --output_dir of a run that lockstep trained.",
                       parsed.run, file.string());
  }
  ReplayJob job;
  job.update = update_to_replay(read_update_records(read_file(metrics), metrics.string()), parsed.options.update, metrics.string());
  const fs::path record = record_of_update(run, job.update);
  const std::string text = read_file(record);
  const nlohmann::json json = read_run(text, record);
  job.command = json["command"];
  const int64_t global_batch_size = json["run"]["global_batch_size"];
  if (job.command == "classify") {
    ParsedClassify classify = load_classify(text, record.string());
    replay_options_of(classify, parsed, global_batch_size, record);
    job.model_folder = classify.options.model.model_name_or_path.value_or("");
    job.run_file = dump_classify(classify);
    job.resolved = resolved_classify_text(classify, page);
  } else {
    ParsedSft sft = load_sft(text, record.string());
    replay_options_of(sft, parsed, global_batch_size, record);
    job.model_folder = sft.options.model.model_name_or_path.value_or("");
    job.run_file = dump_sft(sft);
    job.resolved = resolved_sft_text(sft, page);
  }
  return job;
}

Words worker_words(const ReplayRequest& request) {
  Words words = {"--replay", request.run.string(), std::to_string(request.update)};
  if (request.checkpoint) words.push_back("from:" + *request.checkpoint);
  return words;
}

std::optional<ReplayRequest> replay_request(std::span<const std::string> words) {
  constexpr std::string_view kFrom = "from:";
  const auto at = std::find(words.begin(), words.end(), "--replay");
  if (words.end() - at < 3) return std::nullopt;
  ReplayRequest request{*(at + 1), std::stoll(*(at + 2)), {}};
  if (words.end() - at > 3 && (at + 3)->starts_with(kFrom)) request.checkpoint = (at + 3)->substr(kFrom.size());
  return request;
}

}  // namespace lockstep::recipes
