// What the options of a run mean.
#include "lockstep/launch/output_rules.h"
#include "lockstep/launch/run_resolve_parts.h"

#include <charconv>
#include <csignal>
#include <cstring>

namespace lockstep::launch {

namespace detail {

std::optional<std::string> Resolving::variable(const std::string& name) const {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

void resolve_processes(Resolving& run) {
  const std::string& text = run.options.nproc_per_node;
  const int num_gpus = run.machine.num_gpus.value_or(0);
  if (const auto number = parse_int(text)) {
    run.spec.num_workers = *number;
  } else if (text == "cpu" || (text == "auto" && num_gpus == 0)) {
    run.spec.num_workers = run.machine.num_cpus;
  } else if (num_gpus > 0) {
    run.spec.num_workers = num_gpus;
  } else {
    run.refuse("nproc_per_node", text,
               "no GPU is visible (CUDA_VISIBLE_DEVICES, /dev/nvidia0). Give a number, or cpu.");
  }
}

namespace {

/// torchrun passes over what is said of ranks that do not exist; a wrong rank is then found out after the run.
std::string no_such_rank(const Resolving& run) {
  const int last = run.spec.num_workers - 1;
  return last == 0 ? "the only local rank here is 0" : fmt::format("the local ranks here are 0 to {}, each once", last);
}

std::vector<Streams> streams(Resolving& run, std::string_view key, const std::string& text) {
  if (auto by_rank = parse_streams(text, run.spec.num_workers)) {
    for (const std::string& entry : idle_entries(text, run.spec.num_workers)) run.note(key, entry, no_such_rank(run));
    return std::move(*by_rank);
  }
  run.refuse(key, text, "must be 0, 1, 2 or 3 (none, stdout, stderr, both), or a list such as 0:3,1:2.");
  return {};
}

std::vector<int> console_ranks(Resolving& run) {
  std::vector<int> ranks;
  const std::string& text = run.options.local_ranks_filter;
  if (text.empty()) return ranks;
  for (const std::string_view part : split(text, ',')) {
    const auto rank = parse_int(trimmed(part));
    if (!rank) {
      run.refuse("local_ranks_filter", text, "must be local ranks such as 0,1,2.");
      return {};
    }
    ranks.push_back(*rank);
    if (*rank < 0 || *rank >= run.spec.num_workers) run.note("local_ranks_filter", part, no_such_rank(run));
  }
  return ranks;
}

/// 0 for a name that no signal has.
int signal_number(std::string_view name) {
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* abbreviation = sigabbrev_np(signal);
    if (abbreviation != nullptr && name == std::string("SIG") + abbreviation) return signal;
  }
  return 0;
}

void resolve_signals(Resolving& run) {
  run.spec.signals_text = run.options.signals_to_handle;
  for (const std::string_view part : split(run.spec.signals_text, ',')) {
    const std::string_view name = trimmed(part);
    if (name.empty()) continue;
    const int signal = signal_number(name);
    if (signal == 0) {
      run.note("signals_to_handle", name, "there is no such signal");
    } else if (signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD) {
      run.note("signals_to_handle", name, "it cannot be handled");
    } else {
      run.spec.signals.push_back(signal);
    }
  }
}

}  // namespace

void resolve_output(Resolving& run) {
  const RunOptions& options = run.options;
  OutputRules& output = run.spec.output;
  if (options.log_dir && !options.log_dir->empty()) output.log_dir = expand_user(*options.log_dir);
  if (options.log_dir && options.log_dir->empty()) {
    run.note("log_dir", "''", "it is empty, and logs go into a temporary folder, as with torchrun. Name one, or leave it out");
  }
  output.redirects = streams(run, "redirects", options.redirects);
  output.tee = streams(run, "tee", options.tee);
  output.stdout_filters = parse_filters(options.duplicate_stdout_filters);
  output.stderr_filters = parse_filters(options.duplicate_stderr_filters);
  output.console_ranks = console_ranks(run);
  output.prefix_template = options.log_line_prefix_template;
  if (output.prefix_template.empty()) {
    output.prefix_template = run.variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
  }
  if (!is_null_device(output)) return;
  constexpr std::string_view kAsItIs = "--log_dir /dev/null leaves all output as it is";
  if (run.parsed.is_given("tee")) run.note("tee", options.tee, kAsItIs);
  if (run.parsed.is_given("redirects")) run.note("redirects", options.redirects, kAsItIs);
}

void resolve_end(Resolving& run) {
  resolve_signals(run);
  const auto from_environment = run.variable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (run.options.shutdown_timeout) {
    run.spec.shutdown_timeout = std::chrono::seconds(*run.options.shutdown_timeout);
  } else if (from_environment) {
    const auto seconds = parse_int(*from_environment);
    if (!seconds || *seconds < 0) {
      run.problems.add(fmt::format("TORCH_ELASTIC_SHUTDOWN_TIMEOUT={}: must be a whole number of seconds.",
                                   *from_environment));
    }
    run.spec.shutdown_timeout = std::chrono::seconds(seconds.value_or(0));
  }
  run.spec.exit_code_is_one = run.variable("LOCKSTEP_EXIT_CODE_COMPAT") == "1";
  if (const auto path = run.variable("TORCHELASTIC_ERROR_FILE")) run.spec.error_file = *path;
}

}  // namespace detail

RunSpec make_run_spec(const ParsedRun& parsed, const Environment& environment, const RunMachine& machine,
                      options::Words& notes) {
  detail::Resolving run = {.parsed = parsed, .options = parsed.options, .environment = environment, .machine = machine,
                           .notes = notes};
  run.spec.environment = environment;
  run.spec.role = parsed.options.role;
  run.spec.max_restarts = static_cast<int>(parsed.options.max_restarts);
  run.spec.virtual_local_rank = parsed.options.virtual_local_rank;
  run.spec.local_addr = parsed.options.local_addr.value_or("");
  run.spec.command = parsed.program;
  if (!parsed.program.empty()) run.spec.entry_name = parsed.program.front();
  detail::resolve_processes(run);
  detail::resolve_nodes(run);
  detail::resolve_output(run);
  detail::resolve_end(run);
  run.problems.throw_if_any();
  return std::move(run.spec);
}

}  // namespace lockstep::launch
