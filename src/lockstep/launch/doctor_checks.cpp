#include "lockstep/launch/doctor_checks.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/slurm_fill_in.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace lockstep::launch {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string limit_text(const std::optional<uint64_t>& limit, bool is_bytes) {
  if (!limit) return "unlimited";
  return is_bytes ? bytes_text(*limit) : std::to_string(*limit);
}

Finding check_open_files(const LimitFacts& limit) {
  constexpr uint64_t kEnough = 4096;  // a node of 64 workers: pipes, sockets and log files
  Finding finding{Verdict::Ok, "open files",
                  fmt::format("{} (at most {})", limit_text(limit.soft, false), limit_text(limit.hard, false))};
  if (limit.hard && *limit.hard < kEnough) {
    finding.verdict = Verdict::Warn;
    finding.remedy = fmt::format("Raise the hard limit to {} or more (LimitNOFILE, /etc/security/limits.conf, or "
                                 "docker's --ulimit nofile): many workers or nodes need a descriptor each.",
                                 kEnough);
  }
  return finding;
}

Finding check_processes(const LimitFacts& limit) {
  constexpr uint64_t kEnough = 2048;
  Finding finding{Verdict::Ok, "processes and threads", limit_text(limit.soft, false)};
  if (limit.soft && *limit.soft < kEnough) {
    finding.verdict = Verdict::Warn;
    finding.remedy = fmt::format("Raise it: ulimit -u {} (or /etc/security/limits.conf). Threads of all this user's "
                                 "programs count.",
                                 kEnough);
  }
  return finding;
}

Finding check_memory(const NodeFacts& facts) {
  const uint64_t usable = std::min(facts.cgroup_bytes.value_or(facts.available_bytes), facts.available_bytes);
  Finding finding{Verdict::Ok, "memory",
                  fmt::format("{} available of {}{}", bytes_text(facts.available_bytes), bytes_text(facts.memory_bytes),
                              facts.cgroup_bytes
                                  ? fmt::format("; the control group allows {}", bytes_text(*facts.cgroup_bytes))
                                  : "")};
  if (usable < 2 * kGiB) {
    finding.verdict = Verdict::Warn;
    finding.remedy = facts.cgroup_bytes && usable == *facts.cgroup_bytes
                         ? "Ask for more (sbatch --mem, docker --memory): a process of a 135M model needs about 2 GiB."
                         : "Stop other programs: a process of a 135M model needs about 2 GiB.";
  }
  return finding;
}

Finding check_cpus(const NodeFacts& facts) {
  Finding finding{Verdict::Ok, "CPUs", fmt::format("{} of {} may be used", facts.usable_cpus, facts.online_cpus)};
  if (facts.cpu_quota) finding.text += fmt::format("; the control group's quota is {:.3g}", *facts.cpu_quota);
  const bool is_one = facts.usable_cpus == 1 || (facts.cpu_quota && *facts.cpu_quota <= 1);
  if (is_one && facts.online_cpus > 1) {
    finding.verdict = Verdict::Warn;
    finding.remedy = "Only one CPU computes. Under SLURM ask for more (--cpus-per-task=N, for sbatch and for srun); in "
                     "a container raise --cpus.";
  }
  return finding;
}

Finding check_shm(const NodeFacts& facts) {
  if (!facts.shm_bytes) {
    return {Verdict::Warn, "/dev/shm", "there is none",
            "Mount a tmpfs there: programs on NCCL and PyTorch's data loaders need it (lockstep's own workers do "
            "not)."};
  }
  Finding finding{Verdict::Ok, "/dev/shm", bytes_text(*facts.shm_bytes)};
  if (*facts.shm_bytes < 256 * kMiB) {
    finding.verdict = Verdict::Warn;
    finding.remedy = "Containers give 64 MiB by default; raise it (docker run --shm-size=8g): programs on NCCL and "
                     "PyTorch's data loaders fail in odd ways without (lockstep's own workers do not use it).";
  }
  return finding;
}

Finding check_gpus(const NodeFacts& facts) {
  if (facts.num_gpu_devices == 0 && facts.gpu_driver.empty()) {
    return {Verdict::Ok, "GPUs", "no NVIDIA GPU here; lockstep's own commands compute on CPUs"};
  }
  if (facts.gpu_driver.empty()) {
    return {Verdict::Warn, "GPUs",
            fmt::format("{} device files, but no driver in /proc/driver/nvidia", facts.num_gpu_devices),
            "Load the nvidia kernel module, or start the container with its GPUs (--gpus all, --nv)."};
  }
  if (facts.num_gpu_devices == 0) {
    return {Verdict::Warn, "GPUs", fmt::format("a driver ({}), but no /dev/nvidia<N>", facts.gpu_driver),
            "Ask for GPUs (sbatch --gpus-per-node=N), or start the container with them (--gpus all, --nv)."};
  }
  return {Verdict::Warn, "GPUs", fmt::format("{}; {}", facts.num_gpu_devices, facts.gpu_driver),
          "lockstep's own commands (sft ...) compute on CPUs: training on GPUs does not exist yet. Programs started by "
          "lockstep run can use them."};
}

Finding check_clock(const NodeFacts& facts) {
  if (facts.is_clock_synchronised.value_or(true)) {
    return {Verdict::Ok, "clock",
            facts.is_clock_synchronised ? "synchronised" : "the kernel does not say whether it is right"};
  }
  return {Verdict::Warn, "clock", "not synchronised, as the kernel sees it",
          "Run chrony or systemd-timesyncd. lockstep itself does not compare clocks; log lines of several nodes and "
          "munge do."};
}

Finding check_folder(const FolderFacts& folder, bool is_for_several_nodes) {
  Finding finding{Verdict::Ok, folder.purpose,
                  fmt::format("{} on {}{}, {} free", folder.path.string(), folder.file_system,
                              folder.is_network ? " (may be shared)" : "", bytes_text(folder.free_bytes))};
  if (!folder.problem.empty()) {
    finding.verdict = Verdict::Fail;
    finding.text += ": " + folder.problem;
    finding.remedy = "Choose a folder that this user can write in.";
  } else if (folder.free_bytes < kGiB) {
    finding.verdict = Verdict::Warn;
    finding.remedy = "Free some space: a model of 135M parameters takes 0.3 to 0.6 GiB.";
  } else if (!folder.can_lock) {
    finding.verdict = Verdict::Warn;
    finding.text += "; flock does not work";
    finding.remedy = "Mount it with locks (NFS: local_lock=none, Lustre: flock): otherwise two runs into one folder "
                     "are not kept apart.";
  } else if (is_for_several_nodes && !folder.is_network) {
    finding.verdict = Verdict::Warn;
    finding.remedy = "This is a disk of this node: other nodes do not see it. Use a shared file system for the model, "
                     "the data and the output, or copy them to the same path on each node.";
  }
  return finding;
}

/// The variables that lockstep reads, as NAME=VALUE.
std::string variables_text(const Environment& environment) {
  constexpr std::array kNames = {
      "SLURM_JOB_ID",        "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_NUM_NODES",
      "SLURM_JOB_NUM_NODES", "SLURM_NODEID",  "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE",
      "SLURM_CPUS_ON_NODE",  "SLURM_GPUS_ON_NODE", "SLURM_JOB_END_TIME", "SLURM_SUBMIT_DIR"};
  std::vector<std::string> pairs;
  for (const char* name : kNames) {
    const auto found = environment.find(name);
    if (found != environment.end()) pairs.push_back(fmt::format("{}={}", name, found->second));
  }
  return fmt::format("{}", fmt::join(pairs, " "));
}

void check_slurm_step(const SlurmStep& step, const NodeFacts& facts, Findings& findings) {
  try {
    const SlurmFillIn derived = fill_in(step, {});
    findings.push_back({Verdict::Ok, "SLURM step", derived.lines.empty() ? "one node: nothing has to be derived"
                                                              : fmt::format("{}", fmt::join(derived.lines, "; "))});
  } catch (const Error& problem) {
    findings.push_back({Verdict::Fail, "SLURM step", problem.what(), "See above."});
  }
  const int gpus = step.job.gpus_on_node.value_or(0);
  if (gpus > facts.num_gpu_devices) {
    findings.push_back({Verdict::Warn, "SLURM GPUs",
                        fmt::format("SLURM_GPUS_ON_NODE={}, but there are {} "
                                    "/dev/nvidia<N>", gpus, facts.num_gpu_devices),
                        "Ask the cluster's administrators whether the node's driver is loaded."});
  }
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1024 * kGiB) return fmt::format("{:.1f} TiB", value / static_cast<double>(1024 * kGiB));
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", value / static_cast<double>(kGiB));
  if (bytes >= kMiB) return fmt::format("{:.0f} MiB", value / static_cast<double>(kMiB));
  return fmt::format("{} KiB", bytes / 1024);
}

Findings check_node(const NodeFacts& facts, std::string_view lockstep_version, bool is_for_several_nodes) {
  Findings findings;
  findings.push_back({Verdict::Ok, "versions", fmt::format("lockstep {}, {} ({}), glibc "
                                                           "{}", lockstep_version, facts.kernel,
                                                           facts.machine, facts.glibc)});
  findings.push_back(check_cpus(facts));
  findings.push_back(check_memory(facts));
  findings.push_back(check_shm(facts));
  findings.push_back(check_open_files(facts.open_files));
  findings.push_back(check_processes(facts.processes));
  findings.push_back({Verdict::Ok, "locked memory",
                      limit_text(facts.locked_memory.soft, true) + " (InfiniBand wants unlimited; sockets need none)"});
  findings.push_back({Verdict::Ok, "core files",
                      facts.core.soft == 0U ? "none are written" : "up to " + limit_text(facts.core.soft, true)});
  findings.push_back(check_clock(facts));
  findings.push_back(check_gpus(facts));
  for (const FolderFacts& folder : facts.folders) findings.push_back(check_folder(folder, is_for_several_nodes));
  return findings;
}

Findings check_slurm(const Environment& environment, const NodeFacts& facts, std::string_view munge_problem,
                     std::optional<Milliseconds> kill_wait) {
  Findings findings;
  SlurmContext context;
  try {
    context = read_slurm(environment);
  } catch (const Error& problem) {
    return {{Verdict::Fail, "SLURM", problem.what(), "Variables seen: " + variables_text(environment)}};
  }
  if (!context.step && !context.batch) return findings;
  findings.push_back({Verdict::Ok, "SLURM variables", variables_text(environment)});
  if (context.step) check_slurm_step(*context.step, facts, findings);
  if (context.batch && context.batch->num_nodes > 1) {
    findings.push_back({Verdict::Warn, "SLURM step",
                        fmt::format("none: job {} has {} nodes, this is outside srun", context.batch->job.job_id,
                                    context.batch->num_nodes),
                        "Run lockstep by srun --ntasks-per-node=1, as every node needs one: srun --ntasks-per-node=1 "
                        "lockstep doctor."});
  }
  findings.push_back(munge_problem.empty()
                         ? Finding{Verdict::Ok, "munge", "works: it seals the token by which the nodes know each other"}
                         : Finding{Verdict::Warn, "munge", fmt::format("does not work: {}", munge_problem),
                                   "The token is then a file of mode 0600 in SLURM_SUBMIT_DIR, which all nodes must "
                                   "see. In a container, bring in libmunge.so.2 and munged's socket."});
  findings.push_back({Verdict::Ok, "time limit",
                      fmt::format("{} s from SIGTERM to "
                                  "SIGKILL{}", kill_wait.value_or(Milliseconds(30'000)).count() / 1000,
                                  kill_wait ? " (KillWait)" : ", SLURM's default (slurm.conf cannot be read here)")});
  return findings;
}

}  // namespace lockstep::launch
