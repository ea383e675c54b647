#include "lockstep/launch/slurm_script.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/slurm_fill_in.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }

void refuse_control_characters(std::string_view name, std::string_view value) {
  if (std::none_of(value.begin(), value.end(), is_control)) return;
  std::string shown(value.substr(0, 60));
  std::replace_if(shown.begin(), shown.end(), is_control, '?');
  throw Error::usage("{} = {}: holds a line break or another control character, which a batch script cannot carry "
                     "there.",
                     name, shown);
}

/// sbatch reads its own lines: words at blanks, '#' starts a comment, quotes and backslashes as a shell's.
std::string sbatch_quote(std::string_view value) {
  const bool is_plain = !value.empty() && value.find_first_of(" '\"\\#") == std::string_view::npos;
  if (is_plain) return std::string(value);
  std::string quoted = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

/// The lines that sbatch reads.
class Directives {
 public:
  void add(const std::string& option, std::string_view value) {
    if (value.empty()) throw Error::usage("--{} is empty. Give a value or leave it out.", option);
    refuse_control_characters("--" + option, value);
    text_ += fmt::format("#SBATCH --{}={}\n", option, sbatch_quote(value));
  }
  void add(const std::string& option, const std::optional<std::string>& value) {
    if (value) add(option, std::string_view(*value));
  }
  void add(const std::string& option, std::optional<int64_t> value) {
    if (value) text_ += fmt::format("#SBATCH --{}={}\n", option, *value);
  }
  void flag(const std::string& option) { text_ += fmt::format("#SBATCH --{}\n", option); }
  /// Already an option with its value: only the value is quoted.
  void add_written(const std::string& written) {
    refuse_control_characters("--sbatch_arg", written);
    const size_t equals = written.find('=');
    if (!written.starts_with('-') || written.find(' ') < equals) {
      throw Error::usage("--sbatch_arg = {}: must be one option with its value attached, as in "
                         "--sbatch_arg=--constraint=h200.",
                         written);
    }
    if (equals == std::string::npos) {
      text_ += fmt::format("#SBATCH {}\n", written);
    } else {
      text_ += fmt::format("#SBATCH {}={}\n", written.substr(0, equals), sbatch_quote(written.substr(equals + 1)));
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string directives(const SlurmScriptOptions& options, std::span<const std::string> words) {
  Directives lines;
  lines.add("job-name", std::string_view(options.job_name ? *options.job_name : words.front()));
  lines.add("nodes", std::optional(options.nodes));
  lines.flag("ntasks-per-node=1");
  lines.add("gpus-per-node", options.gpus_per_node);
  lines.add("cpus-per-task", options.cpus_per_task);
  lines.add("mem", options.mem);
  lines.add("time", options.time);
  lines.add("partition", options.partition);
  lines.add("account", options.account);
  lines.add("qos", options.qos);
  if (options.exclusive) lines.flag("exclusive");
  lines.add("output", options.output);
  lines.add("signal", options.signal);
  if (options.requeue) lines.flag(*options.requeue ? "requeue" : "no-requeue");
  for (const std::string& written : options.sbatch_arg) lines.add_written(written);
  return lines.text();
}

bool is_safe_in_shell(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-+=./:,@%^").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quote(std::string_view word) {
  if (!word.empty() && word.front() != '=' && std::all_of(word.begin(), word.end(), is_safe_in_shell)) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (char c : word) {
    if (c == '\'') quoted += "'\\''";
    else quoted += c;
  }
  return quoted + "'";
}

std::string shell_line(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += shell_quote(word);
  }
  return line;
}

std::string slurm_script(const SlurmScriptOptions& options, const std::string& program,
                         std::span<const std::string> words) {
  if (words.empty()) {
    throw Error::usage("lockstep slurm: after -- comes what each node runs, as in -- sft --config run.yaml.");
  }
  for (const std::string& word : words) {
    if (word.find('\0') != std::string::npos) throw Error::usage("a word after -- holds a zero byte.");
  }
  std::string script = "#!/bin/bash\n# One lockstep on each node; it starts the node's processes.\n" +
                       directives(options, words) + "\n";
  for (const std::string& line : options.setup) {
    refuse_control_characters("--setup", line);
    script += line + "\n";
  }
  // srun does not take --cpus-per-task over from sbatch in every version of SLURM.
  std::vector<std::string> line = {"exec", "srun"};
  for (const std::string& option : srun_options()) line.push_back(option);
  if (options.cpus_per_task) line.push_back(fmt::format("--cpus-per-task={}", *options.cpus_per_task));
  line.insert(line.end(), options.srun_arg.begin(), options.srun_arg.end());
  line.push_back(program);
  line.insert(line.end(), words.begin(), words.end());
  return script + shell_line(line) + "\n";
}

}  // namespace lockstep::launch
