#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/worker_environment.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A set of a worker's output streams, numbered as --redirects and --tee number them.
enum class Streams : uint8_t { None = 0, Out = 1, Err = 2, Both = 3 };

/// What becomes of the workers' output.
struct OutputRules {
  /// Root of the log tree. Absent: a temporary folder, removed after a success. /dev/null: neither files nor error
  /// records, and all output goes where lockstep's own goes.
  std::optional<fs::path> log_dir = {};
  std::vector<Streams> redirects = {};  ///< into files, by local rank; a rank beyond the end: None
  std::vector<Streams> tee = {};        ///< into files and, with a prefix, to the console; same shape
  std::vector<int> console_ranks = {};  ///< local ranks whose output the console shows; empty: all
  std::vector<std::string> stdout_filters = {};  ///< tee'd lines with any of them go to filtered_stdout.log too
  std::vector<std::string> stderr_filters = {};
  std::string prefix_template = {};     ///< empty: "[${role_name}${local_rank}]:"
};

/// How the nodes of a job find each other.
enum class Meeting {
  OneNode,  ///< no rendezvous: this node is the job
  Static,   ///< the node of rank 0 is at the endpoint; every node has its rank from --node_rank
  C10d,     ///< whoever has the endpoint's address hosts; ranks are given out
};

/// Everything that `lockstep run` was asked for, resolved and checked; nothing in it is read again from the command
/// line or the environment. Plain data.
struct RunSpec {
  // ---- the job
  Meeting meeting = Meeting::OneNode;
  int min_nodes = 1;
  int max_nodes = 1;
  std::string run_id;
  /// OneNode: what workers get as MASTER_ADDR and MASTER_PORT (port 0: any free one). Static: the same, of node 0.
  /// C10d: where agents meet (port 0: any, possible on one host only).
  std::string endpoint_host = "localhost";
  uint16_t endpoint_port = 0;
  std::map<std::string, std::string> rdzv_conf = {};  ///< as written; keys without effect have been noted
  std::optional<int> node_rank = {};                  ///< only when it was given
  std::string local_addr = {};                        ///< this node's address for the others; empty: found out
  int max_restarts = 0;                               ///< of the whole job
  /// False (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1): rank 0's worker opens the store at MASTER_PORT itself.
  bool use_agent_store = true;

  // ---- the workers of this node
  int num_workers = 1;
  std::string role = "default";
  /// Program and arguments. command[0] is a path that exists and may be executed. "${local_rank}" in an argument
  /// becomes the worker's local rank, as in torchrun.
  std::vector<std::string> command = {};
  std::string entry_name = {};   ///< how reports call the program: the script as it was written
  Environment environment = {};  ///< the caller's, which workers inherit
  bool virtual_local_rank = false;
  OutputRules output = {};

  // ---- their end
  std::vector<int> signals = {};            ///< that end the job and are passed on to the workers
  std::string signals_text = {};            ///< the same as they were written
  Milliseconds shutdown_timeout{30'000};    ///< from the signal to SIGKILL
  bool exit_code_is_one = false;            ///< LOCKSTEP_EXIT_CODE_COMPAT=1: any failure ends with 1, as in torchrun
  std::optional<fs::path> error_file = {};  ///< lockstep's own TORCHELASTIC_ERROR_FILE: gets the first cause
};

/// What a round of a job decided for this node. A job without restarts has one round.
struct Placement {
  int restart_count = 0;  ///< of the whole job
  int group_rank = 0;     ///< of this node, in this round
  int group_world_size = 1;
  int rank_base = 0;      ///< rank of the node's first worker
  int world_size = 1;
  int role_rank_base = 0;
  int role_world_size = 1;
  std::string master_addr;
  uint16_t master_port = 0;
  std::string own_addr = "127.0.0.1";  ///< of this node, numeric, as the others reach it
  int node_index = 0;  ///< stays the same over restarts
  std::optional<fs::path> host_list_file = {};
  std::optional<int64_t> deadline = {};  ///< of the allocation, seconds since 1970
};

}  // namespace lockstep::launch
