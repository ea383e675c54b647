#include "lockstep/launch/slurm_fill_in.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/launch/slurm_script.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

void refuse_several_tasks(const SlurmStep& step) {
  const auto most = std::max_element(step.tasks_per_node.begin(), step.tasks_per_node.end());
  if (most == step.tasks_per_node.end() || *most <= 1) return;
  const auto place = static_cast<size_t>(most - step.tasks_per_node.begin());
  throw Error::usage("srun started lockstep {} times on node {} (SLURM_STEP_TASKS_PER_NODE). Start it once on each "
                     "node: "
                     "srun --ntasks-per-node=1 ...; it starts the processes of a node itself (--nproc_per_node). To "
                     "run independent jobs side by side, add --standalone.",
                     *most, step.hosts.at(place));
}

void refuse_loopback(const SlurmStep& step, const std::string& host) {
  if (!is_loopback_text(host)) return;
  throw Error::usage("the endpoint {} is each node's own address, but the step has {} nodes (SLURM_STEP_NUM_NODES): "
                     "they "
                     "would never meet. Leave the endpoint out (lockstep takes {}, the first of SLURM_STEP_NODELIST), "
                     "or give the first node's name.",
                     host, step.num_nodes, step.hosts.front());
}

std::string step_hosts_text(const SlurmStep& step) {
  constexpr size_t kShown = 4;
  if (step.hosts.size() <= kShown) return fmt::format("{}", fmt::join(step.hosts, ", "));
  return fmt::format("{}, ...", fmt::join(std::span(step.hosts).first(kShown), ", "));
}

void fill_in_node_rank(const SlurmStep& step, const SlurmGiven& given, int max_nodes, SlurmFillIn& result) {
  if (max_nodes != step.num_nodes) {
    result.warnings.push_back(
        fmt::format("--nnodes {} differs from the step's {} nodes (SLURM_STEP_NUM_NODES); SLURM_NODEID is not used as "
                    "the node's rank.",
                    max_nodes, step.num_nodes));
    return;
  }
  result.node_rank = step.node_id;
  if (given.node_rank && *given.node_rank != step.node_id) {
    result.rank_warning =
        fmt::format("--node_rank {} is overridden by SLURM_NODEID={}. (A batch script expands $SLURM_NODEID itself, "
                    "where it is 0 for every node: leave --node_rank out.)",
                    *given.node_rank, step.node_id);
  } else if (!given.node_rank) {
    result.lines.push_back(fmt::format("node rank by SLURM_NODEID ({} here)", step.node_id));
  }
}

void fill_in_endpoint(const SlurmStep& step, const SlurmGiven& given, SlurmFillIn& result) {
  const std::string& first = step.hosts.front();
  const auto alias = step.addresses.find(first);
  result.endpoint_host = alias == step.addresses.end() ? first : alias->second;
  result.endpoint_port = given.endpoint_port.value_or(slurm_port(step));
  result.lines.push_back(fmt::format("endpoint {}:{} ({}, the port {})", *result.endpoint_host, *result.endpoint_port,
                                     alias == step.addresses.end() ? "first host of SLURM_STEP_NODELIST"
                                                                   : "address of " + first + " in SLURM_NODE_ALIASES",
                                     given.endpoint_port ? "by --master_port" : "from job and step"));
}

std::optional<bool> is_here(const SlurmStep& step, const std::string& host) {
  const bool is_known = std::find(step.hosts.begin(), step.hosts.end(), host) != step.hosts.end();
  if (!is_known || step.node_name.empty()) return std::nullopt;
  return step.node_name == host;
}

}  // namespace

bool is_loopback_text(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::string lower(host);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.starts_with("127.")) {
    return std::all_of(lower.begin(), lower.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  }
  return lower == "localhost" || lower.starts_with("localhost.") || lower == "ip6-localhost" ||
         lower == "ip6-loopback" || lower == "::1";
}

int slurm_port(const SlurmStep& step) {
  const std::string key = step.job.cluster + "/" + step.run_id();
  return 20'000 + static_cast<int>(hash_bytes(std::as_bytes(std::span(key))) % 10'000);
}

SlurmFillIn fill_in(const SlurmStep& step, const SlurmGiven& given) {
  SlurmFillIn result;
  if (step.job.gpus_on_node.value_or(0) > 0) result.gpus_per_node = step.job.gpus_on_node;
  if (!given.standalone) refuse_several_tasks(step);
  if (result.gpus_per_node && !given.nproc) {
    result.lines.push_back(fmt::format("{} processes per node (SLURM_GPUS_ON_NODE)", *result.gpus_per_node));
  }
  const int max_nodes = given.standalone ? 1 : given.max_nodes.value_or(step.num_nodes);
  if (max_nodes == 1) {
    if (step.num_nodes > 1) {
      result.warnings.push_back(
          fmt::format("{}: each of the step's {} nodes (SLURM_STEP_NUM_NODES) runs a job of its own. Leave it out to "
                      "run one job on all of them.",
                      given.standalone ? "--standalone" : "--nnodes 1", step.num_nodes));
    }
    return result;
  }
  if (!given.max_nodes) {
    result.num_nodes = step.num_nodes;
    result.lines.insert(result.lines.begin(), fmt::format("{} nodes {} (SLURM_STEP_NUM_NODES, SLURM_STEP_NODELIST)",
                                                          step.num_nodes, step_hosts_text(step)));
  }
  if (given.endpoint_host) refuse_loopback(step, *given.endpoint_host);
  fill_in_node_rank(step, given, max_nodes, result);
  if (!given.endpoint_host) fill_in_endpoint(step, given, result);
  result.is_endpoint_here = is_here(step, given.endpoint_host.value_or(step.hosts.front()));
  if (!given.run_id) {
    result.run_id = step.run_id();
    result.lines.push_back(fmt::format("run id {} (SLURM_JOB_ID, SLURM_STEP_ID{})", *result.run_id,
                                       step.job.restart_count > 0 ? ", SLURM_RESTART_COUNT" : ""));
  }
  return result;
}

std::vector<std::string> srun_options() {
  return {"--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=60"};
}

std::optional<BatchAdvice> batch_advice(const SlurmBatch& batch, const SlurmGiven& given,
                                        std::span<const std::string> argv) {
  if (batch.num_nodes <= 1 || given.standalone || given.max_nodes == 1) return std::nullopt;
  std::vector<std::string> words = {"srun", fmt::format("--nodes={}", batch.num_nodes)};
  for (const std::string& option : srun_options()) words.push_back(option);
  words.insert(words.end(), argv.begin(), argv.end());
  BatchAdvice advice;
  advice.refuse = !given.endpoint_host || is_loopback_text(*given.endpoint_host);
  advice.text = fmt::format(
      "{} of job {} on {} nodes (SLURM_JOB_NUM_NODES), outside srun: lockstep runs on {} alone. To start it on all of "
      "them, type\n\n  {}\n\n{}To run on this node alone, add --standalone.",
      batch.interactive ? "this is the shell" : "this is the batch script", batch.job.job_id, batch.num_nodes,
      batch.interactive ? "this node" : "the first node", shell_line(words),
      advice.refuse ? "" : "An endpoint was given, so this node waits there for the others. ");
  return advice;
}

Milliseconds slurm_grace(Milliseconds given, Milliseconds kill_wait) {
  constexpr Milliseconds kMargin{5'000};
  const Milliseconds latest = std::max(kill_wait - kMargin, kill_wait / 2);
  return std::min(given, latest);
}

}  // namespace lockstep::launch
