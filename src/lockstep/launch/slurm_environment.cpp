#include "lockstep/launch/slurm_environment.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/host_list.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <unordered_set>

namespace lockstep::launch {
namespace {

constexpr std::string_view kIgnore = "LOCKSTEP_SLURM=0 makes lockstep ignore SLURM's variables.";
constexpr int kMostNodes = 65'536;

template <class Number>
std::optional<Number> to_number(std::string_view text) {
  Number value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The variables of a process, with the words for what is wrong with one.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(&environment) {}

  /// Empty and "(null)", which SLURM writes for nothing, count as absent.
  std::optional<std::string> text(const std::string& name) const {
    const auto found = environment_->find(name);
    if (found == environment_->end() || found->second.empty() || found->second == "(null)") return std::nullopt;
    return found->second;
  }

  /// The first of `names` that is set.
  std::optional<std::string> first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (auto value = text(name)) return value;
    }
    return std::nullopt;
  }

  template <class Number = int>
  std::optional<Number> number(const std::string& name, Number least,
                               Number most = std::numeric_limits<Number>::max()) const {
    const auto given = text(name);
    if (!given) return std::nullopt;
    const auto value = to_number<Number>(*given);
    if (!value || *value < least || *value > most) {
      throw Error::usage("{}={}: must be a whole number from {} to {}. SLURM sets it; {}", name, *given, least, most,
                         kIgnore);
    }
    return value;
  }

 private:
  const Environment* environment_;
};

/// Slurm's own steps are no srun of the user: salloc's shell, the batch script, the extern step.
bool is_interactive(const std::string& step) { return step == "4294967290" || step == "interactive"; }
bool is_users_step(const std::string& step) {
  constexpr std::array<std::string_view, 6> kSlurmsOwn = {"4294967290", "4294967291", "4294967292",
                                                          "interactive", "batch", "extern"};
  return std::find(kSlurmsOwn.begin(), kSlurmsOwn.end(), step) == kSlurmsOwn.end();
}

/// Ids become part of run ids and file names.
std::string checked_id(const std::string& name, const std::string& text) {
  const bool is_plain = text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || c == '_' || c == '-' || c == '+';
  });
  if (!is_plain) throw Error::usage("{}={}: is no id of SLURM. {}", name, text, kIgnore);
  return text;
}

SlurmJob read_job(const Variables& variables, const std::string& id) {
  SlurmJob job;
  job.cluster = variables.text("SLURM_CLUSTER_NAME").value_or("");
  job.job_id = checked_id("SLURM_JOB_ID", id);
  job.restart_count = variables.number("SLURM_RESTART_COUNT", 0).value_or(0);
  job.submit_dir = variables.text("SLURM_SUBMIT_DIR").value_or("");
  job.cpus_on_node = variables.number("SLURM_CPUS_ON_NODE", 1, 1 << 20);
  job.gpus_on_node = variables.number("SLURM_GPUS_ON_NODE", 0, 1 << 16);
  job.end_time = variables.number<int64_t>("SLURM_JOB_END_TIME", 0);
  return job;
}

/// "(cloud1:10.0.0.5:host1)": bracketed IPv6 addresses may hold colons.
std::map<std::string, std::string> read_addresses(const Variables& variables) {
  std::map<std::string, std::string> result;
  std::string_view rest;
  const auto text = variables.text("SLURM_NODE_ALIASES");
  if (text) rest = *text;
  while (!rest.empty()) {
    const std::string_view triple = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), triple.size() + 1));
    const size_t first = triple.find(':');
    const size_t last = triple.rfind(':');
    if (first == std::string_view::npos || first == last) continue;  // an alias without an address
    std::string_view address = triple.substr(first + 1, last - first - 1);
    if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
    if (!address.empty()) result.emplace(triple.substr(0, first), address);
  }
  return result;
}

void check_step(const Variables& variables, const SlurmStep& step) {
  if (static_cast<int>(step.hosts.size()) != step.num_nodes) {
    throw Error::usage("SLURM contradicts itself: SLURM_STEP_NUM_NODES={}, but SLURM_STEP_NODELIST={} has {} hosts. {}",
                       step.num_nodes, variables.text("SLURM_STEP_NODELIST").value_or(""), step.hosts.size(), kIgnore);
  }
  if (step.node_id >= step.num_nodes) {
    throw Error::usage("SLURM contradicts itself: SLURM_NODEID={}, but SLURM_STEP_NUM_NODES={}. {}", step.node_id,
                       step.num_nodes, kIgnore);
  }
  if (step.tasks_per_node.size() != step.hosts.size()) {
    throw Error::usage("SLURM contradicts itself: SLURM_STEP_TASKS_PER_NODE={} is for {} nodes, but "
                       "SLURM_STEP_NUM_NODES={}. {}",
                       variables.text("SLURM_STEP_TASKS_PER_NODE").value_or(""), step.tasks_per_node.size(),
                       step.num_nodes, kIgnore);
  }
}

/// Whether the step's nodes are those of another job.
bool is_of_another_job(const Variables& variables, const std::vector<std::string>& hosts) {
  const auto here = variables.text("SLURMD_NODENAME");
  if (here && std::find(hosts.begin(), hosts.end(), *here) == hosts.end()) return true;
  const auto list = variables.first_of({"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return false;
  const std::vector<std::string> of_job = parse_host_list(*list, "SLURM_JOB_NODELIST");
  const std::unordered_set<std::string_view> known(of_job.begin(), of_job.end());
  return !std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return known.contains(host); });
}

SlurmStep read_step(const Variables& variables, const SlurmJob& job, const std::string& step_id,
                    std::vector<std::string> hosts) {
  SlurmStep step;
  step.job = job;
  step.step_id = checked_id("SLURM_STEP_ID", step_id);
  step.hosts = std::move(hosts);
  step.node_name = variables.text("SLURMD_NODENAME").value_or("");
  const auto num_hosts = static_cast<int>(step.hosts.size());
  step.num_nodes = variables.number("SLURM_STEP_NUM_NODES", 1, kMostNodes).value_or(num_hosts);
  const auto node_id = variables.number("SLURM_NODEID", 0, kMostNodes - 1);
  if (!node_id && step.num_nodes > 1) {
    throw Error::usage("SLURM contradicts itself: SLURM_STEP_NUM_NODES={}, but SLURM_NODEID is not set, so this node "
                       "cannot tell which of them it is. Start lockstep by srun itself. {}",
                       step.num_nodes, kIgnore);
  }
  step.node_id = node_id.value_or(0);
  if (const auto tasks = variables.text("SLURM_STEP_TASKS_PER_NODE")) {
    step.tasks_per_node = parse_slurm_counts(*tasks, "SLURM_STEP_TASKS_PER_NODE");
  } else {
    step.tasks_per_node.assign(step.hosts.size(), 1);
  }
  step.addresses = read_addresses(variables);
  step.launcher_port = variables.first_of({"SLURM_STEP_LAUNCHER_PORT", "SLURM_SRUN_COMM_PORT"}).value_or("");
  check_step(variables, step);
  return step;
}

}  // namespace

std::string SlurmStep::run_id() const {
  const std::string id = job.job_id + "." + step_id;
  return job.restart_count > 0 ? fmt::format("{}.{}", id, job.restart_count) : id;
}

SlurmContext read_slurm(const Environment& environment) {
  const Variables variables(environment);
  if (variables.text("LOCKSTEP_SLURM") == "0") return {};
  const auto job_id = variables.first_of({"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job_id) return {};
  if (variables.number("SLURM_HET_SIZE", 0).value_or(0) > 1) {
    throw Error::usage("SLURM_HET_SIZE={}: a heterogeneous job. Its parts number their nodes separately, so nothing "
                       "can be filled in from SLURM. Give --nnodes, --node_rank, --rdzv_endpoint and --rdzv_id, with "
                       "LOCKSTEP_SLURM=0 in the environment.",
                       *variables.text("SLURM_HET_SIZE"));
  }
  SlurmJob job = read_job(variables, *job_id);
  const auto step_id = variables.first_of({"SLURM_STEP_ID", "SLURM_STEPID"});
  const auto step_nodes = variables.text("SLURM_STEP_NODELIST");
  if (step_id && is_users_step(*step_id) && step_nodes) {
    std::vector<std::string> hosts = parse_host_list(*step_nodes, "SLURM_STEP_NODELIST");
    if (!is_of_another_job(variables, hosts)) return {.step = read_step(variables, job, *step_id, std::move(hosts))};
  }
  SlurmBatch batch;
  batch.job = std::move(job);
  batch.interactive = step_id && is_interactive(*step_id);
  const auto of_job = variables.number("SLURM_JOB_NUM_NODES", 1, kMostNodes);
  batch.num_nodes = of_job ? *of_job : variables.number("SLURM_NNODES", 1, kMostNodes).value_or(1);
  return {.batch = std::move(batch)};
}

std::vector<int> parse_slurm_counts(std::string_view text, std::string_view origin) {
  std::vector<int> result;
  const auto fail = [&](size_t where) {
    throw Error::usage("{}={}, character {}: must be numbers such as 2(x3),1. "
                       "{}", origin, text.substr(0, 200), where + 1,
                       kIgnore);
  };
  size_t at = 0;
  while (true) {
    const std::string_view item = text.substr(at, text.find(',', at) - at);
    const size_t bracket = item.find("(x");
    const auto count = to_number<int>(item.substr(0, bracket));
    auto repeats = std::optional<int>(1);
    if (bracket != std::string_view::npos) {
      const std::string_view inside = item.substr(bracket + 2, item.size() - bracket - 3);
      repeats = item.ends_with(')') ? to_number<int>(inside) : std::nullopt;
    }
    if (!count || *count < 0 || !repeats || *repeats < 1) fail(at);
    if (*repeats > kMostNodes - static_cast<int>(result.size())) fail(at);
    result.insert(result.end(), static_cast<size_t>(*repeats), *count);
    if (at + item.size() == text.size()) return result;
    at += item.size() + 1;
  }
}

}  // namespace lockstep::launch
