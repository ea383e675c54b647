// The front program's commands.
#include "lockstep/apps/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/doctor.h"
#include "lockstep/launch/slurm_command.h"
#include "lockstep/options/nearest.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/recipes/generate_cli.h"
#include "lockstep/recipes/sft_cli.h"
#include "lockstep/report/command.h"

#include <fmt/ranges.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace lockstep;

constexpr const char* kHelp = R"(lockstep trains transformer models; the result does not depend on the layout.

  lockstep sft        fine-tune a model on chats or texts      (the role of: trl sft)
  lockstep classify   fine-tune, evaluate and use a classifier (the role of: run_glue.py, run_classification.py)
  lockstep generate   what a model says: prompts, chats, files
  lockstep replay     compute updates of a run again and compare them with what it logged
  lockstep run        start a program on one node or many      (the role of: torchrun)
  lockstep report     one HTML page from the records of one run or several
  lockstep slurm      write (and submit) a batch script        (the role of: the sbatch script)
  lockstep doctor     look at this node, and towards others: names, ports, limits, SLURM
  lockstep options    print the documentation of all options   (as Markdown)

  lockstep sft --help     what it takes, with examples (lockstep run --help: the same)
  lockstep --version

You type `trl sft ARGS` today: type `lockstep sft ARGS`; for `torchrun ARGS`, `lockstep run ARGS`. Example:

  lockstep sft --model_name_or_path SmolLM2-135M-Instruct --dataset_name chats.jsonl --output_dir out --nproc_per_node 2
)";

constexpr std::array<std::string_view, 9> kCommands = {"sft",    "classify", "generate", "replay", "run",
                                                       "report", "slurm",    "doctor",   "options"};

}  // namespace

int lockstep::apps::run_command_line(const std::vector<std::string>& words, const std::vector<std::string>& argv) {
  const std::string command = words.empty() ? "help" : words[0];
  const std::vector<std::string> args(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (command == "sft") return apps::run_sft({args, argv});
  if (command == "classify") return apps::run_classify({args, argv});
  if (command == "generate") return apps::run_generate({args, argv});
  if (command == "replay") return apps::run_replay({args, argv});
  if (command == "run") return apps::run_run({args, argv});
  if (command == "slurm") return launch::run_slurm_command(args);
  if (command == "report") return report::run_report_command(args);
  if (command == "doctor") return launch::run_doctor_command(args);
  if (command == "options") {
    if (!args.empty() && args != std::vector<std::string>{"--markdown"}) {
      throw Error::usage("lockstep options: prints docs/options.md and takes no other word than --markdown, not '{}'.", args[0]);
    }
    fmt::print("{}{}", recipes::options_markdown(), recipes::classify_markdown() + recipes::generate_markdown());
    return 0;
  }
  if (command == "help" && args.size() == 1) return run_command_line({args[0], "--help"}, argv);
  if (command == "help" || command == "--help" || command == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  const std::string meant = options::nearest_word(kCommands, command);
  throw Error::usage("lockstep {}: there is no such command.{} Commands: {}. See lockstep --help.", command,
                     meant.empty() ? "" : fmt::format(" Did you mean lockstep {}?", meant), fmt::join(kCommands, ", "));
}
