#pragma once

#include "lockstep/base/files.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::launch {

using Environment = std::map<std::string, std::string>;
using EnvironmentPairs = std::vector<std::pair<std::string, std::string>>;

/// What a worker learns from its environment. Without any of the variables: the only worker of a run by hand.
struct WorkerEnvironment {
  int world_rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int group_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;         ///< of the store where the ranks meet; absent: one node, a file does
  std::string node_addr = "127.0.0.1";    ///< of this node, as the other ranks reach it
  int restart_count = 0;                  ///< of the whole job
  std::optional<int> control_fd;          ///< absent: no front program
  std::optional<fs::path> run_folder;     ///< private folder of the run: options, error records
  std::optional<int> num_threads;         ///< size of the compute pool; absent: the worker's choice
  std::optional<int> terminal_columns;    ///< present when the front program's stderr is a terminal
};

/// Throws Error{Usage} naming the variable and its value when one is malformed or two contradict each other.
WorkerEnvironment parse_worker_environment(const Environment& environment);

/// What the front program decides for one worker.
struct WorkerVariables {
  int local_rank = 0;
  int num_workers = 1;                  ///< on this node
  int rank_base = 0;                    ///< rank of this node's first worker
  std::optional<int> world_size = {};   ///< absent: one node
  int group_rank = 0;
  int restart_count = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port = {};
  std::string node_addr = "127.0.0.1";
  int num_threads = 1;
  fs::path run_folder;
  int control_fd = -1;
  std::string mkl_cbwr;
  std::optional<int> terminal_columns;
};

/// The worker's whole environment: `inherited`, then the user's pairs, then what lockstep decides. A user's pair that
/// names a variable of the last kind is an Error{Usage}, because it could only be ignored.
Environment worker_environment(const Environment& inherited, const EnvironmentPairs& user,
                               const WorkerVariables& variables);

/// `given` (--threads_per_process), else an equal share of the cores, at least 1.
int threads_per_worker(std::optional<int> given, int cores, int num_workers);

/// The value of MKL_CBWR that makes MKL's products independent of alignment and thread count on a CPU with these
/// flags (the words of /proc/cpuinfo): "AVX512,STRICT", "AVX2,STRICT", or "COMPATIBLE" on older ones.
std::string mkl_cbwr(std::string_view cpu_flags);

// ---- the edge: what this machine and process say ----
Environment current_environment();
/// The flags of the first CPU in /proc/cpuinfo; empty where the file does not tell.
std::string cpu_flags();
/// Width of the terminal behind `fd`; absent when it is none. 80 when the terminal does not know.
std::optional<int> terminal_columns(int fd);

}  // namespace lockstep::launch
