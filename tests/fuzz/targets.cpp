#include "fuzz/targets.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::fuzz {
namespace {

std::vector<std::string> no_seeds() { return {}; }

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"frames", fuzz_frames, no_seeds, {}, 512},
      {"agent_frames", fuzz_agent_frames, agent_frames_seeds, {"10.0.0.2", "fd00::2"}, 2048},
      {"store_commands", fuzz_store_commands, store_commands_seeds, {std::string("\0\xce\xf7\x85\x3c", 5), "41"}, 2048},
      {"endpoints", fuzz_endpoints, no_seeds, {"[", "]", ":", "%", "::", "::ffff:", "fe80::1%lo", "65535", "65536", "node1", "0"}, 300},
      {"host_list", fuzz_host_list, no_seeds, {"[", "]", ",", "-", "*", "[0-9]", "[01-10]", "*2"}, 1024},
      {"rdzv_conf", fuzz_rdzv_conf, no_seeds,
       {",", "=", "join_timeout=", "last_call_timeout=", "timeout=", "keep_alive_interval=", "keep_alive_max_attempt=",
        "read_timeout=", "is_host=", "require_token=", "token_file=", "true", "1e8", "1e-9", "0.001", "inf", "nan"}, 1024},
      {"slurm_variables", fuzz_slurm_variables, no_seeds,
       {"=", "\n", ",", "(x2)", "[0-1]", "(null)", "SLURM_JOB_ID=", "SLURM_JOB_NODELIST=", "SLURM_JOB_NUM_NODES=",
        "SLURM_STEP_ID=", "SLURM_STEP_NODELIST=", "SLURM_STEP_NUM_NODES=", "SLURM_STEP_TASKS_PER_NODE=",
        "SLURM_NODE_ALIASES=", "SLURM_NODEID=", "SLURM_HET_SIZE=", "SLURM_RESTART_COUNT=", "SLURM_JOB_END_TIME=",
        "SLURM_GPUS_ON_NODE=", "SLURMD_NODENAME=", "LOCKSTEP_SLURM=0", "KillWait=", "KillOnBadExit=", "AuthInfo="}, 2048},
      {"error_files", fuzz_error_files, no_seeds,
       {"{", "}", "[", "]", ":", ",", "\"", "\"message\":", "\"extraInfo\":", "\"py_callstack\":", "\"timestamp\":",
        "\"kind\":", "\"pid\":", "\"phase\":", "\"time\":", "1e300", "-1e19", "null", "\\u0000", "\\ud800"}, 2048},
      {"worker_output", fuzz_worker_output, no_seeds, {"\n", "\r", "hello", "beat", "phase ", "done ", "error "}, 1024},
  };
  return all;
}

const Target& target(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Target& candidate : targets()) {
    if (candidate.name == name) return candidate;
    names.push_back(candidate.name);
  }
  throw Error::usage("{}: there is no such fuzz target. There are: {}.", name, fmt::join(names, ", "));
}

}  // namespace lockstep::fuzz
