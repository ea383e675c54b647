#include "lockstep/launch/worker_environment.h"

#include "lockstep/base/error.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>

namespace lockstep::launch {

namespace {

std::optional<std::string> find(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
}

std::optional<int> find_int(const Environment& environment, const std::string& name, int least) {
  const auto text = find(environment, name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [parsed_to, problem] = std::from_chars(text->data(), end, value);
  if (problem != std::errc() || parsed_to != end || value < least) {
    throw Error::usage("environment variable {}={}: must be a whole number of at least {}. lockstep sets it for its "
                       "workers; to start one by hand, unset it.", name, *text, least);
  }
  return value;
}

/// A rank and the size it counts in: both or none, rank below size.
void read_rank(const Environment& environment, const std::string& rank_name, const std::string& size_name, int& rank,
               int& size) {
  const auto given_rank = find_int(environment, rank_name, 0);
  const auto given_size = find_int(environment, size_name, 1);
  if (given_rank.has_value() != given_size.has_value()) {
    throw Error::usage("environment variable {} is set but {} is not: set both, or none for a single worker.",
                       given_rank ? rank_name : size_name, given_rank ? size_name : rank_name);
  }
  if (!given_rank) return;
  if (*given_rank >= *given_size) {
    throw Error::usage("environment variables {}={} and {}={} contradict each other: a rank must be below the size.",
                       rank_name, *given_rank, size_name, *given_size);
  }
  rank = *given_rank;
  size = *given_size;
}

Environment decided_variables(const WorkerVariables& v) {
  const std::string size = std::to_string(v.num_workers);
  Environment decided = {
      {"RANK", std::to_string(v.rank_base + v.local_rank)},
      {"LOCAL_RANK", std::to_string(v.local_rank)},
      {"WORLD_SIZE", v.world_size ? std::to_string(*v.world_size) : size},
      {"LOCAL_WORLD_SIZE", size},
      {"GROUP_RANK", std::to_string(v.group_rank)},
      {"MASTER_ADDR", v.master_addr},
      {"LOCKSTEP_NODE_ADDR", v.node_addr},
      {"LOCKSTEP_RESTART_COUNT", std::to_string(v.restart_count)},
      {"LOCKSTEP_RUN_FOLDER", v.run_folder.string()},
      {"LOCKSTEP_CONTROL_FD", std::to_string(v.control_fd)},
      {"LOCKSTEP_NUM_THREADS", std::to_string(v.num_threads)},
      {"OMP_NUM_THREADS", "1"},
      {"MKL_NUM_THREADS", "1"},
      {"MKL_CBWR", v.mkl_cbwr},
  };
  if (v.master_port) decided["MASTER_PORT"] = std::to_string(*v.master_port);
  if (v.terminal_columns) decided["LOCKSTEP_TTY_COLUMNS"] = std::to_string(*v.terminal_columns);
  return decided;
}

void check_user_pair(const std::string& name, const std::string& value, const Environment& decided) {
  if (name.empty() || name.find('=') != std::string::npos) {
    throw Error::usage("env: \"{}\" cannot be the name of an environment variable.", name);
  }
  if (!decided.contains(name) && name != "LOCKSTEP_TTY_COLUMNS") return;
  const bool is_threads = name == "OMP_NUM_THREADS" || name == "MKL_NUM_THREADS" || name == "LOCKSTEP_NUM_THREADS";
  throw Error::usage("env: {}={} cannot be set, because lockstep decides it for each worker{}. Remove the line{}.",
                     name, value, decided.contains(name) ? " (" + decided.at(name) + ")" : "",
                     is_threads ? "; the number of threads is --threads_per_process" : "");
}

}  // namespace

WorkerEnvironment parse_worker_environment(const Environment& environment) {
  WorkerEnvironment result;
  read_rank(environment, "RANK", "WORLD_SIZE", result.world_rank, result.world_size);
  result.local_rank = result.world_rank;
  result.local_world_size = result.world_size;
  read_rank(environment, "LOCAL_RANK", "LOCAL_WORLD_SIZE", result.local_rank, result.local_world_size);
  result.group_rank = find_int(environment, "GROUP_RANK", 0).value_or(0);
  result.master_addr = find(environment, "MASTER_ADDR").value_or(result.master_addr);
  result.node_addr = find(environment, "LOCKSTEP_NODE_ADDR").value_or(result.node_addr);
  result.restart_count = find_int(environment, "LOCKSTEP_RESTART_COUNT", 0).value_or(0);
  result.control_fd = find_int(environment, "LOCKSTEP_CONTROL_FD", 0);
  // By hand, MASTER_PORT may be left from something else; a front program says where the ranks meet.
  if (result.control_fd) result.master_port = find_int(environment, "MASTER_PORT", 1);
  result.num_threads = find_int(environment, "LOCKSTEP_NUM_THREADS", 1);
  result.terminal_columns = find_int(environment, "LOCKSTEP_TTY_COLUMNS", 1);
  if (const auto folder = find(environment, "LOCKSTEP_RUN_FOLDER")) result.run_folder = *folder;
  return result;
}

Environment worker_environment(const Environment& inherited, const EnvironmentPairs& user,
                               const WorkerVariables& variables) {
  const Environment decided = decided_variables(variables);
  Environment result = inherited;
  // A run inside a worker of another run must not take the outer terminal for its own.
  result.erase("LOCKSTEP_TTY_COLUMNS");
  // Without a port of this run, one of the caller's must not be taken for it.
  result.erase("MASTER_PORT");
  // oneDNN keeps generated code per shape, some 600 KB each with AMX. A grain needs a few dozen of them, thirty times
  // over; grains rarely have equal shapes, so a larger cache costs gigabytes and finds little (docs/perf).
  result.insert_or_assign("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512");
  // c10d warns on every connection to a host without a name; our own errors say what matters.
  result.emplace("TORCH_CPP_LOG_LEVEL", "ERROR");
  for (const auto& [name, value] : user) {
    check_user_pair(name, value, decided);
    result.insert_or_assign(name, value);
  }
  for (const auto& [name, value] : decided) result.insert_or_assign(name, value);
  return result;
}

int threads_per_worker(std::optional<int> given, int cores, int num_workers) {
  return given ? *given : std::max(1, cores / num_workers);
}

std::string mkl_cbwr(std::string_view cpu_flags) {
  const std::string padded = " " + std::string(cpu_flags) + " ";
  const auto has = [&](std::string_view flag) {
    return padded.find(" " + std::string(flag) + " ") != std::string::npos;
  };
  // MKL's AVX512 branch means these five; early many-core chips had the first two alone.
  constexpr std::array kAvx512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"};
  if (std::all_of(kAvx512.begin(), kAvx512.end(), has)) return "AVX512,STRICT";
  return has("avx2") ? "AVX2,STRICT" : "COMPATIBLE";
}

Environment current_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::string cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("flags")) return line.substr(line.find(':') + 1);
  }
  return {};
}

std::optional<int> terminal_columns(int fd) {
  if (isatty(fd) == 0) return std::nullopt;
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace lockstep::launch
