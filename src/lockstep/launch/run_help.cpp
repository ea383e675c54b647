#include "lockstep/launch/run_help.h"

#include "lockstep/options/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::launch {

namespace {

using options::Field;

constexpr size_t kIndent = 2;
constexpr size_t kFlagColumn = 34;

constexpr std::string_view kUsage = R"(lockstep run: start a program on one node or many, as torchrun does.

  lockstep run [FLAGS] PROGRAM [ARGUMENTS]

PROGRAM is an executable, a Python script (X.py, run by PYTHON_EXEC or python3) or, after -m, a Python module.
Everything after it is the program's own. Each worker learns its place from RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT and the rest of torchrun's variables.
)";

constexpr std::string_view kRecipes = R"(  One node, 8 workers:
    lockstep run --nproc_per_node 8 train.py --lr 1e-4
  One worker per GPU, each worker's lines in the terminal behind its name and in a file:
    lockstep run --nproc_per_node gpu --tee 3 --log_dir logs ./train
  Two nodes by hand, the same line on both (HOST: the name of one of them):
    lockstep run --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint HOST:29500 train.py
  SLURM, one launcher per node; addresses and ranks come from the step:
    srun --ntasks-per-node 1 lockstep run --nproc_per_node 8 train.py
  Go on after up to three failures:
    lockstep run --nproc_per_node 8 --max_restarts 3 train.py
)";

constexpr std::string_view kEnd = R"(
Every flag may be written with dashes or underscores, and shortened while unique. PET_NNODES=2 and the like stand for
--nnodes 2; the command line goes before them. Exit code: that of the worker that failed first, or 128 + its signal;
LOCKSTEP_EXIT_CODE_COMPAT=1 makes it 1, as torchrun's. 2: this command line is wrong. 4: the machine.
)";

std::string value_word(const Field& field) {
  if (options::is_boolean(field)) return "";
  if (field.spec.unit == "path") return " PATH";
  if (field.spec.unit == "seconds") return " SECONDS";
  const std::string type = options::type_name(field);
  return type == "int" ? " N" : type == "float" ? " X" : " WORD";
}

std::string description(const Field& field) {
  std::string text = field.spec.help;
  if (!field.spec.choices.empty()) text += fmt::format(" One of {}.", fmt::join(field.spec.choices, ", "));
  const std::string initial = options::is_boolean(field) ? std::string() : options::default_text(field);
  if (!initial.empty()) text += fmt::format(" [{}]", initial);
  return text;
}

std::string names_of(const options::Fields& fields, options::Class kind, std::string_view title,
                     const options::Page& page) {
  options::Words names;
  for (const Field& field : fields) {
    if (field.spec.kind == kind) names.push_back("--" + field.spec.key);
  }
  std::string text = "\n" + options::heading(title, page);
  for (const std::string& line : options::wrap(fmt::format("{}", fmt::join(names, " ")), page.width - kIndent)) {
    text += "  " + line + "\n";
  }
  return text;
}

std::string dashed(std::string text) {
  for (char& letter : text) letter = letter == '_' ? '-' : letter;
  return text;
}

/// "--nnodes --nproc-per-node ...", without what is refused.
options::Words offered_flags(const options::Fields& fields) {
  options::Words flags = {"--help"};
  for (const Field& field : fields) {
    if (field.spec.kind != options::Class::Refused) flags.push_back("--" + dashed(field.spec.key));
  }
  return flags;
}

constexpr std::string_view kBash = R"(# Put this into ~/.bashrc, or: source <(lockstep run --print_completion bash)
_lockstep_run() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}"
  if [[ "${{COMP_WORDS[0]##*/}}" == lockstep && $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W "run sft options --help --version" -- "$word"))
  elif [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "{}" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _lockstep_run torchrun lockstep
)";

constexpr std::string_view kZsh = R"(#compdef torchrun lockstep
# Put this into a folder of $fpath as _lockstep_run
_lockstep_run() {{
  if [[ "${{words[1]:t}}" == lockstep && $CURRENT -eq 2 ]]; then
    compadd run sft options
  elif [[ "${{words[CURRENT]}}" == -* ]]; then
    compadd -- {}
  else
    _files
  fi
}}
compdef _lockstep_run torchrun lockstep
)";

constexpr std::string_view kTcsh = R"(# Put this into ~/.tcshrc
complete torchrun 'c/--/({0})/' 'n/*/f/'
complete lockstep 'p/1/(run sft options)/' 'c/--/({0})/' 'n/*/f/'
)";

}  // namespace

std::string run_help(const options::Fields& fields, const options::Page& page) {
  std::string text = std::string(kUsage) + "\n" + options::heading("Recipes", page) + std::string(kRecipes);
  std::string group;
  for (const Field& field : fields) {
    if (field.spec.kind != options::Class::Works) continue;
    if (field.spec.group != group) {
      group = field.spec.group;
      text += "\n" + options::heading(group, page);
    }
    text += options::two_columns(fmt::format("--{}{}", field.spec.key, value_word(field)), description(field), kIndent,
                                 kFlagColumn, page);
  }
  text += names_of(fields, options::Class::NoObject, "Known from torchrun, accepted without effect", page);
  text += names_of(fields, options::Class::Refused, "Known from torchrun, refused (the error says why)", page);
  return text + std::string(kEnd);
}

std::string completion_script(const options::Fields& fields, std::string_view shell) {
  const options::Words flags = offered_flags(fields);
  if (shell == "bash") return fmt::format(kBash, fmt::join(flags, " "));
  if (shell == "zsh") return fmt::format(kZsh, fmt::join(flags, " "));
  options::Words bare;
  for (const std::string& flag : flags) bare.push_back(flag.substr(2));
  return fmt::format(kTcsh, fmt::join(bare, " "));
}

}  // namespace lockstep::launch
