#include "lockstep/recipes/generate_cli.h"

#include "lockstep/base/files.h"
#include "lockstep/options/help.h"
#include "lockstep/options/json.h"
#include "lockstep/options/markdown.h"
#include "lockstep/recipes/cli_checks.h"

namespace lockstep::recipes {
namespace {

constexpr std::string_view kGenerateCommand = "generate";

constexpr CommandExample kGenerateExamples[] = {
    {"Continue a text:", "lockstep generate --model_name_or_path out --prompt \"Once upon a time\""},
    {"Ask a chat model:", "lockstep generate --model_name_or_path out --chat --prompt \"Why is the sky blue?\""},
    {"Talk with it in the terminal:", "lockstep generate --model_name_or_path out --chat"},
    {"Sample, the same text each time; another with another --seed:", "... --temperature 0.7 --top_p 0.9 --seed 1"},
    {"A file of prompts, one JSON line for each:", "... --file prompts.jsonl --output_file said.jsonl --batch_size 16"},
    {"Stop at a text of your own:", "... --stop_strings \"\\nQuestion:\" --max_new_tokens 100"},
};

std::string introduction_of_generate(const options::Page& page) {
  return "lockstep generate: what a model says.\n"
         "Greedy by default; a completion ends at an eos token of generation_config.json, at a stop string, or after\n"
         "--max_new_tokens. A text is the same for every --batch_size and --threads.\n\n" +
         options::heading("Examples", page) + example_lines(kGenerateExamples, page) + "\n" +
         options::heading("Rows of --file, one JSON object a line", page) +
         "  {\"prompt\": \"a text\"}    {\"prompt\": [{\"role\": \"user\", \"content\": ...}]}    {\"messages\": [...]}\n"
         "  The answer is the row with a \"completion\"; trailing assistant messages are what the model should say: leave them out.\n";
}

void check_input(const GenerateOptions& o, bool has_terminal, options::Resolved& resolved) {
  options::Problems& problems = resolved.problems;
  if (o.model_name_or_path.value_or("").empty() && !resolved.may_mean("model_name_or_path"))
    problems.add("missing --model_name_or_path: the folder of the model. Try --model_name_or_path out.");
  const bool prompts = o.prompt && !o.prompt->empty();
  if (prompts && o.file) problems.add("--prompt and --file exclude each other. Give one of them.");
  if (!prompts && !o.file && !o.chat && !resolved.may_mean("prompt"))
    problems.add("nothing to continue. Give --prompt TEXT, --file FILE, or --chat for a conversation in the terminal.");
  if (!prompts && !o.file && o.chat && !has_terminal)
    problems.add("--chat without prompts is a conversation in a terminal, and standard input is none. Give --prompt TEXT or --file FILE.");
  if (o.output_file && !o.file) problems.add(with_origin(resolved.origins, "output_file", *o.output_file) + ": belongs to --file. Add it, or leave this out.");
  if (prompts)
    for (const std::string& text : *o.prompt)
      if (text.empty()) problems.add("--prompt '': is empty. Give a text.");
  if (o.system && !o.chat && !o.file) problems.add(with_origin(resolved.origins, "system", *o.system) + ": belongs to chats. Add --chat.");
  if (o.stop_strings)
    for (const std::string& text : *o.stop_strings)
      if (text.empty()) problems.add("--stop_strings '': is empty, and every text would end there. Leave it out.");
}

void check_sampling(const GenerateOptions& o, options::Resolved& resolved) {
  if (o.temperature > 0) return;
  const auto refuse = [&](std::string_view key, const auto& value) {
    resolved.problems.add(with_origin(resolved.origins, key, value) +
                          ": chooses what to sample from, and --temperature 0 takes the likeliest token. Add --temperature 1.");
  };
  if (o.top_k != 0) refuse("top_k", o.top_k);
  if (o.top_p != 1) refuse("top_p", o.top_p);
  if (o.min_p != 0) refuse("min_p", o.min_p);
}

}  // namespace

ParsedGenerate parse_generate(std::span<const std::string> args, const options::Environment& environment, bool has_terminal) {
  ParsedGenerate parsed;
  const options::Fields fields = options::collect(parsed.options);
  options::Resolved resolved = options::resolve(args, fields);
  if (resolved.help != options::Help::None) {
    parsed.help = options::help_text(fields, introduction_of_generate(environment.page), resolved.help, environment.page, "transformers");
    return parsed;
  }
  check_input(parsed.options, has_terminal, resolved);
  check_sampling(parsed.options, resolved);
  resolved.problems.throw_if_any();
  for (auto* path : {&parsed.options.model_name_or_path, &parsed.options.file, &parsed.options.output_file,
                     &parsed.options.chat_template_path}) {
    if (*path) *path = expand_user(**path);
  }
  parsed.origins = std::move(resolved.origins);
  parsed.notes = std::move(resolved.notes);
  parsed.environment = std::move(resolved.environment);
  parsed.dry_run = resolved.dry_run;
  return parsed;
}

std::string resolved_generate_text(const ParsedGenerate& parsed, const options::Page& page) {
  GenerateOptions copy = parsed.options;
  return options::resolved_text(options::collect(copy), parsed.origins, page);
}

std::string dump_generate(const ParsedGenerate& parsed) {
  GenerateOptions copy = parsed.options;
  return options::dump_json(options::collect(copy), parsed.origins, kGenerateCommand);
}

GenerateOptions load_generate(std::string_view text) {
  GenerateOptions options;
  options::load_json(text, options::collect(options), kGenerateCommand, "--options");
  return options;
}

std::string generate_markdown() {
  GenerateOptions defaults;
  return "\n" + options::to_markdown(options::collect(defaults), kGenerateCommand);
}

}  // namespace lockstep::recipes
