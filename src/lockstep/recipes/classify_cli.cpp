#include "lockstep/recipes/classify_cli.h"

#include "lockstep/base/error.h"

#include <fmt/format.h>

#include "lockstep/base/files.h"
#include "lockstep/optim/rule.h"
#include "lockstep/options/help.h"
#include "lockstep/options/json.h"
#include "lockstep/options/markdown.h"
#include "lockstep/recipes/classify_checks.h"
#include "lockstep/recipes/cli_checks.h"

namespace lockstep::recipes {
namespace {

using options::Page;

constexpr std::string_view kClassify = "classify";

constexpr CommandExample kClassifyExamples[] = {
    {"Do two sentences say the same? A folder with train and validation files (JSONL, CSV or TSV):",
     "lockstep classify --model_name_or_path all-MiniLM-L6-v2 --task mrpc --dataset_name mrpc --output_dir out"},
    {"Labels and columns of your own, evaluated and saved after each epoch, the best model kept:",
     "lockstep classify --model_name_or_path all-MiniLM-L6-v2 --dataset_name reviews --text_column text --label_column stars "
     "--eval_strategy epoch --save_strategy epoch --load_best_model_at_end --metric_for_best_model accuracy"},
    {"The same job, the same bits, with four processes:", "... --nproc_per_node 4 --global_batch_size 32"},
    {"Go on after an interruption, with as many processes as there are now:", "... --resume_from_checkpoint last"},
    {"Only evaluate:", "lockstep classify --model_name_or_path out --task mrpc --dataset_name mrpc --do_eval"},
    {"Only predict, for a CSV file (commas, names of the columns in its first line); a line per row goes to said/predictions.jsonl:",
     "lockstep classify --model_name_or_path out --test_file rows.csv --text_column text --do_predict --output_dir said"},
    {"Files by name instead of a folder:",
     "lockstep classify --model_name_or_path all-MiniLM-L6-v2 --train_file train.csv --validation_file dev.csv --text_column text "
     "--label_column stars --output_dir out"},
    {"From a file (YAML), looked at before it runs:", "lockstep classify --config run.yaml --dry_run"},
};

std::string introduction_of_classify(const Page& page) {
  return "lockstep classify: train an encoder or a language model to label texts or pairs of texts.\n"
         "The flags are those of transformers' TrainingArguments, run_glue and run_classification.\n\n" +
         options::heading("Examples", page) + example_lines(kClassifyExamples, page) + "\n" +
         options::heading("Rows of the data", page) +
         "  {\"sentence1\": ..., \"sentence2\": ..., \"label\": 0}    JSONL; or CSV, TSV with these names in the first line\n"
         "  label: a number or a name per class; a list of them for several at once; a fraction for regression\n"
         "  Files: DATASET/train.jsonl, DATASET/validation.jsonl, DATASET/test.jsonl, or --train_file ...\n";
}

}  // namespace

ParsedClassify parse_classify(std::span<const std::string> args, const options::Environment& environment) {
  ParsedClassify parsed;
  ClassifyOptions& classify = parsed.options;
  const options::Fields fields = options::collect(classify);
  options::Resolved resolved = options::resolve(args, fields);
  if (resolved.help != options::Help::None) {
    parsed.help = options::help_text(fields, introduction_of_classify(environment.page), resolved.help, environment.page,
                                     "transformers");
    return parsed;
  }
  // Values that are out of range have been reported; what follows from them would only say it again.
  if (resolved.problems.empty()) apply_older_names(classify, resolved.origins, resolved.problems, resolved.notes);
  require_inputs(classify, resolved);
  if (resolved.problems.empty()) {
    check_batch(classify.train, classify.launch, resolved.origins, environment, resolved.problems);
  }
  if (resolved.problems.empty()) check_launch(classify.launch, resolved.origins, resolved.problems);
  check_output(classify.train, resolved.origins, resolved.problems);
  check_duration(classify.train, resolved.origins, resolved.problems, resolved.notes);
  if (resolved.problems.empty()) check_classify(classify, resolved.origins, resolved.problems, resolved.notes);
  resolved.problems.throw_if_any();
  optim::check_options(classify.optim);
  parsed.origins = std::move(resolved.origins);
  parsed.notes = std::move(resolved.notes);
  parsed.environment = std::move(resolved.environment);
  parsed.dry_run = resolved.dry_run;
  return parsed;
}

std::string resolved_classify_text(const ParsedClassify& parsed, const Page& page) {
  ClassifyOptions copy = parsed.options;
  return options::resolved_text(options::collect(copy), parsed.origins, page);
}

std::string dump_classify(const ParsedClassify& parsed) {
  ClassifyOptions copy = parsed.options;
  return options::dump_json(options::collect(copy), parsed.origins, kClassify);
}

ParsedClassify load_classify(std::string_view text, std::string_view where) {
  ParsedClassify parsed;
  parsed.origins = options::load_json(text, options::collect(parsed.options), kClassify, where);
  if (!parsed.options.model.model_name_or_path) {
    throw Error::data("{}: has no 'options.model_name_or_path'. It must be a file that lockstep wrote; was it edited?", where);
  }
  return parsed;
}

std::string classify_markdown() {
  ClassifyOptions defaults;
  return options::to_markdown(options::collect(defaults), kClassify);
}

}  // namespace lockstep::recipes
