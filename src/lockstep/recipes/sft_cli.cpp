#include "lockstep/recipes/sft_cli.h"

#include <fmt/format.h>

#include "lockstep/base/files.h"
#include "lockstep/options/help.h"
#include "lockstep/options/json.h"
#include "lockstep/options/markdown.h"
#include "lockstep/options/value.h"

namespace lockstep::recipes {
namespace {

using options::Origin;
using options::Origins;
using options::Page;
using options::Problems;
using options::Words;

constexpr std::string_view kCommand = "sft";

bool is_given(const Origins& origins, std::string_view key) {
  return options::origin_of(origins, key).kind != Origin::Kind::Default;
}

template <class T>
std::string with_origin(const Origins& origins, std::string_view key, const T& value) {
  return options::value_with_origin(key, fmt::format("{}", value), options::origin_of(origins, key));
}

void require_model_and_data(const SftOptions& sft, Problems& problems) {
  if (sft.model.model_name_or_path.value_or("").empty()) {
    problems.add("missing --model_name_or_path: the folder of the model to start from. "
                 "Try --model_name_or_path SmolLM2-135M-Instruct.");
  }
  if (sft.data.dataset_name.value_or("").empty()) {
    problems.add("missing --dataset_name: a JSONL file with rows of messages, prompt and completion, or text. "
                 "Try --dataset_name chats.jsonl.");
  }
}

/// --global_batch_size fixes the product; what else is given of its factors must agree.
void check_batch(const SftOptions& sft, const Origins& origins, const options::Environment& environment,
                 Problems& problems) {
  const train::TrainOptions& train = sft.train;
  if (!train.global_batch_size) return;
  const bool batch_given = is_given(origins, "per_device_train_batch_size");
  const bool accumulation_given = is_given(origins, "gradient_accumulation_steps");
  const bool nodes_given = is_given(origins, "nnodes") || is_given(origins, "num_machines");
  const int64_t nodes = nodes_given || sft.launch.standalone ? launch::num_nodes(sft.launch) : environment.nodes;
  const int64_t workers = launch::num_workers(sft.launch, environment.cores) * nodes;
  const int64_t batch = train.per_device_train_batch_size;
  const int64_t accumulation = train.gradient_accumulation_steps;
  const std::string global = with_origin(origins, "global_batch_size", *train.global_batch_size);
  if (batch_given && accumulation_given && batch * workers * accumulation != *train.global_batch_size) {
    problems.add(fmt::format(
        "{}: per_device_train_batch_size x nproc_per_node x gradient_accumulation_steps = {} x {} x {} = {}. "
        "Leave out --global_batch_size, or one of the factors.",
        global, batch, workers, accumulation, batch * workers * accumulation));
  } else if (batch_given != accumulation_given) {
    const int64_t given = workers * (batch_given ? batch : accumulation);
    if (*train.global_batch_size % given == 0) return;
    problems.add(fmt::format("{}: not a multiple of {} x nproc_per_node = {} x {} = {}. Leave one of the two out.",
                             global, batch_given ? "per_device_train_batch_size" : "gradient_accumulation_steps",
                             batch_given ? batch : accumulation, workers, given));
  }
}

/// accelerate's words beside torchrun's: two names of one thing must agree.
void check_launch(const launch::LaunchOptions& launch, const Origins& origins, Problems& problems) {
  const auto contradict = [&](std::string_view ours, const auto& our_value, std::string_view theirs, auto their_value) {
    problems.add(fmt::format("{} and {} contradict each other. Leave one out.", with_origin(origins, ours, our_value),
                             with_origin(origins, theirs, their_value)));
  };
  const int64_t nodes = launch::num_nodes(launch);
  if (launch.num_machines && is_given(origins, "nnodes") && launch.nnodes != std::to_string(nodes) &&
      launch.nnodes != fmt::format("{0}:{0}", nodes)) {
    contradict("nnodes", launch.nnodes, "num_machines", nodes);
  }
  if (launch.machine_rank && is_given(origins, "node_rank") && launch.node_rank != *launch.machine_rank) {
    contradict("node_rank", launch.node_rank, "machine_rank", *launch.machine_rank);
  }
  if (!launch.num_processes) return;
  if (*launch.num_processes % nodes != 0) {
    problems.add(fmt::format("{}: not a multiple of the {} machines. Use --nproc_per_node on each.",
                             with_origin(origins, "num_processes", *launch.num_processes), nodes));
  } else if (is_given(origins, "nproc_per_node") &&
             launch.nproc_per_node != std::to_string(*launch.num_processes / nodes)) {
    contradict("nproc_per_node", launch.nproc_per_node, "num_processes", *launch.num_processes);
  }
}

void check_output(train::TrainOptions& train, const Origins& origins, Problems& problems) {
  if (!train.output_dir) return;
  if (train.output_dir->empty()) {
    problems.add(with_origin(origins, "output_dir", "''") + ": is empty. Name a folder, or leave it out: trainer_output.");
  }
  train.output_dir = expand_user(*train.output_dir);
}

void check_together(const SftOptions& sft, const Origins& origins, Problems& problems, Words& notes) {
  const train::TrainOptions& train = sft.train;
  if (train.max_steps == 0) {
    problems.add(with_origin(origins, "max_steps", 0) + ": must be -1 (as num_train_epochs says) or at least 1.");
  }
  if (train.max_steps > 0 && is_given(origins, "num_train_epochs")) {
    notes.push_back(fmt::format("{} has no effect: {} says how long training lasts.",
                                with_origin(origins, "num_train_epochs", train.num_train_epochs),
                                with_origin(origins, "max_steps", train.max_steps)));
  }
  if (train.activation_checkpointing && train.gradient_checkpointing &&
      *train.activation_checkpointing != *train.gradient_checkpointing) {
    problems.add(fmt::format("{} and {} are two names of one option. Leave one out.",
                             with_origin(origins, "activation_checkpointing", *train.activation_checkpointing),
                             with_origin(origins, "gradient_checkpointing", *train.gradient_checkpointing)));
  }
}

struct Example {
  std::string_view purpose;
  std::string_view command;
};

constexpr Example kExamples[] = {
    {"Fine-tune a model on chats of your own:",
     "lockstep sft --model_name_or_path SmolLM2-135M-Instruct --dataset_name chats.jsonl --output_dir tuned"},
    {"The same job, the same bits, with two processes:", "... --nproc_per_node 2 --global_batch_size 32"},
    {"A command of trl, as it is:",
     "... --learning_rate 2e-5 --num_train_epochs 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 8"},
    {"A first look: ten updates on short samples:", "... --max_steps 10 --max_length 256 --logging_steps 1"},
    {"From a file (trl's YAML), looked at before it runs:", "lockstep sft --config run.yaml --dry_run"},
};

std::string introduction(const Page& page) {
  std::string text = "lockstep sft: fine-tune a language model on chats or texts of your own.\n"
                     "The flags are those of trl sft.\n\n" + options::heading("Examples", page);
  for (const Example& example : kExamples) {
    text += fmt::format("  {}\n", example.purpose);
    // A shell joins lines at a backslash, so that a long example can be pasted as it stands.
    const Words lines = options::wrap(example.command, page.width > 40 ? page.width - 8 : 32);
    for (size_t i = 0; i < lines.size(); ++i) {
      text += fmt::format("{}{}{}\n", i == 0 ? "    " : "      ", lines[i], i + 1 < lines.size() ? " \\" : "");
    }
  }
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
  require_model_and_data(parsed.options, resolved.problems);
  // Factors that are out of range have been reported; their product would only say it again.
  if (resolved.problems.empty()) check_batch(parsed.options, resolved.origins, environment, resolved.problems);
  if (resolved.problems.empty()) check_launch(parsed.options.launch, resolved.origins, resolved.problems);
  check_output(parsed.options.train, resolved.origins, resolved.problems);
  check_together(parsed.options, resolved.origins, resolved.problems, resolved.notes);
  resolved.problems.throw_if_any();
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
  return parsed;
}

std::optional<std::string> checkpoint_note(const ParsedSft& parsed, int64_t num_updates) {
  const train::TrainOptions& train = parsed.options.train;
  const bool noted = is_given(parsed.origins, "save_steps") || is_given(parsed.origins, "save_strategy");
  if (noted || train.save_strategy != "steps" || static_cast<double>(num_updates) <= train.save_steps) {
    return std::nullopt;
  }
  return fmt::format("note: trl would write a checkpoint every {} updates (its default); intermediate checkpoints are not "
                     "written yet, the trained model is saved at the end.",
                     train.save_steps);
}

std::string options_markdown() {
  SftOptions defaults;
  return std::string(kMarkdownStart) + options::to_markdown(options::collect(defaults), kCommand);
}

}  // namespace lockstep::recipes
