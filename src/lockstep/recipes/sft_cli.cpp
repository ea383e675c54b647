#include "lockstep/recipes/sft_cli.h"

#include "lockstep/base/error.h"

#include <fmt/format.h>

#include "lockstep/optim/rule.h"
#include "lockstep/options/help.h"
#include "lockstep/options/json.h"
#include "lockstep/options/markdown.h"
#include "lockstep/base/files.h"
#include "lockstep/metrics/trainer_state.h"
#include "lockstep/recipes/cli_checks.h"
#include "lockstep/recipes/evaluation_checks.h"

namespace lockstep::recipes {
namespace {

using options::Origins;
using options::Page;
using options::Problems;
using options::Words;

constexpr std::string_view kCommand = "sft";

void require_model_and_data(const SftOptions& sft, options::Resolved& resolved) {
  if (sft.model.model_name_or_path.value_or("").empty() && !resolved.may_mean("model_name_or_path")) {
    resolved.problems.add("missing --model_name_or_path: the folder of the model to start from. "
                          "Try --model_name_or_path SmolLM2-135M-Instruct.");
  }
  if (sft.data.dataset_name.value_or("").empty() && sft.data.datasets.empty() && !resolved.may_mean("dataset_name")) {
    resolved.problems.add("missing --dataset_name: a JSONL file with rows of messages, prompt and completion, or text. "
                          "Try --dataset_name chats.jsonl.");
  }
}

/// As sft_metrics() in sft.cpp makes them.
void check_best_metric_of_sft(const train::EvaluationOptions& evaluation, const Origins& origins, Problems& problems) {
  if (!evaluation.metric_for_best_model || metrics::depends_on_clock(*evaluation.metric_for_best_model)) return;
  const std::string key = metrics::best_metric_key(*evaluation.metric_for_best_model);
  const bool loss_only = evaluation.prediction_loss_only;
  if (key == "eval_loss") return;
  if (!loss_only && (key == "eval_entropy" || key == "eval_num_tokens" || key == "eval_mean_token_accuracy")) return;
  problems.add(fmt::format("{}: the evaluations of this run have no {}. Use {}.",
                           with_origin(origins, "metric_for_best_model", *evaluation.metric_for_best_model), key,
                           loss_only ? "loss, or leave --prediction_loss_only out"
                                     : "one of loss, entropy, num_tokens, mean_token_accuracy"));
}

void check_sft(SftOptions& sft, const Origins& origins, Problems& problems, Words& notes) {
  const bool evaluates = sft.evaluation.eval_strategy != "no";
  if (sft.checkpoints.resume_from_checkpoint && sft.checkpoints.resume_from_checkpoint->empty()) {
    problems.add(with_origin(origins, "resume_from_checkpoint", "''") + ": is empty. Give a folder or last, or leave it out.");
  }
  if (sft.evaluation.eval_on_start && !evaluates) {
    problems.add(with_origin(origins, "eval_on_start", true) +
                 ": there are no rows to evaluate on. Add --eval_strategy epoch, or steps.");
  }
  if ((sft.data.dataset_streaming || sft.data.streaming) && sft.train.max_steps <= 0) {
    problems.add(with_origin(origins, sft.data.dataset_streaming ? "dataset_streaming" : "streaming", true) +
                 ": the length of the data is not known, so --max_steps must say when to stop. Add --max_steps 1000.");
  }
  if (!sft.data.datasets.empty() && sft.data.dataset_name) {
    notes.push_back("--datasets is read, and --dataset_name is not, as in trl");
  }
  check_best_metric_of_sft(sft.evaluation, origins, problems);
  check_evaluation({sft.train, sft.evaluation, sft.checkpoints, sft.optim, evaluates}, origins, problems, notes);
  for (auto* path : {&sft.checkpoints.resume_from_checkpoint, &sft.train.logging_dir}) {
    if (*path) *path = expand_user(**path);
  }
}

constexpr CommandExample kExamples[] = {
    {"Fine-tune a model on chats of your own:",
     "lockstep sft --model_name_or_path SmolLM2-135M-Instruct --dataset_name chats.jsonl --output_dir tuned"},
    {"The same job, the same bits, with two processes:", "... --nproc_per_node 2 --global_batch_size 32"},
    {"A command of trl, as it is:",
     "... --learning_rate 2e-5 --num_train_epochs 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 8"},
    {"A first look: ten updates on short samples:", "... --max_steps 10 --max_length 256 --logging_steps 1"},
    {"With evaluations (FOLDER/test.jsonl), the best model kept:",
     "... --dataset_name FOLDER --eval_strategy steps --eval_steps 100 --save_steps 100 --load_best_model_at_end"},
    {"Go on after an interruption, with as many processes as there are now:", "... --resume_from_checkpoint last"},
    {"From a file (trl's YAML), looked at before it runs:", "lockstep sft --config run.yaml --dry_run"},
};

std::string introduction(const Page& page) {
  std::string text = "lockstep sft: fine-tune a language model on chats or texts of your own.\n"
                     "The flags are those of trl sft.\n\n" + options::heading("Examples", page);
  text += example_lines(kExamples, page);
  return text + "\n" + options::heading("Rows of the data, one JSON object a line", page) +
         "  {\"messages\": [{\"role\": \"user\", \"content\": ...}, ...]}\n"
         "  {\"prompt\": ..., \"completion\": ...}    texts or messages; the completion is trained\n"
         "  {\"text\": ...}\n";
}

constexpr std::string_view kMarkdownStart = R"(# Options

This page is made from the option structs themselves. After a change, write it anew:

    build/bin/lockstep options --markdown > docs/options.md

- **Names** are those of trl, transformers, torchrun and accelerate. Dashes and underscores are alike, `--flag value`
  and `--flag=value` too. A boolean may stand alone (`--bf16`) or have a value (`--bf16 false`); one that is true by
  default has a `--no_` form. An unambiguous beginning of a name is enough. Given twice, the last one holds.
- **`none`** unsets an option that is a number, a boolean or a list.
- **Priority**: default, then `--config FILE`, then the command line. The file is YAML: a mapping from option names to
  values, and under `env:` environment variables that are set before anything else.
- **`--dry_run`** prints each option with its origin and the plan of the run, and stops.
- **Classes**: *works*; *no object*: accepted with one note, because there is nothing here that it could act on;
  *refused*: a value that asks for something else ends the program with the reason and what to do instead. A value
  equal to trl's default is always accepted.

)";

}  // namespace

ParsedSft parse_sft(std::span<const std::string> args, const options::Environment& environment) {
  ParsedSft parsed;
  const options::Fields fields = options::collect(parsed.options);
  options::Resolved resolved = options::resolve(args, fields);
  if (resolved.help != options::Help::None) {
    parsed.help = options::help_text(fields, introduction(environment.page), resolved.help, environment.page);
    return parsed;
  }
  require_model_and_data(parsed.options, resolved);
  // Factors that are out of range have been reported; their product would only say it again.
  if (resolved.problems.empty()) {
    check_batch(parsed.options.train, parsed.options.launch, resolved.origins, environment, resolved.problems);
  }
  if (resolved.problems.empty()) check_launch(parsed.options.launch, resolved.origins, resolved.problems);
  check_output(parsed.options.train, resolved.origins, resolved.problems);
  check_duration(parsed.options.train, resolved.origins, resolved.problems, resolved.notes);
  if (resolved.problems.empty()) check_sft(parsed.options, resolved.origins, resolved.problems, resolved.notes);
  resolved.problems.throw_if_any();
  optim::check_options(parsed.options.optim);
  parsed.origins = std::move(resolved.origins);
  parsed.notes = std::move(resolved.notes);
  parsed.environment = std::move(resolved.environment);
  parsed.dry_run = resolved.dry_run;
  return parsed;
}

std::string resolved_sft_text(const ParsedSft& parsed, const Page& page) {
  SftOptions copy = parsed.options;
  return options::resolved_text(options::collect(copy), parsed.origins, page);
}

std::string dump_sft(const ParsedSft& parsed) {
  SftOptions copy = parsed.options;
  return options::dump_json(options::collect(copy), parsed.origins, kCommand);
}

ParsedSft load_sft(std::string_view text, std::string_view where) {
  ParsedSft parsed;
  parsed.origins = options::load_json(text, options::collect(parsed.options), kCommand, where);
  if (!parsed.options.model.model_name_or_path) {
    throw Error::data("{}: has no 'options.model_name_or_path'. It must be a file that lockstep wrote; was it edited?", where);
  }
  return parsed;
}

std::string options_markdown() {
  SftOptions defaults;
  return std::string(kMarkdownStart) + options::to_markdown(options::collect(defaults), kCommand);
}

}  // namespace lockstep::recipes
