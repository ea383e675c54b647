#pragma once

#include "lockstep/library/api.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// The processes of the job, as torch.distributed has them. One group per process; all calls but rank() and the like are
/// collective and come from one thread. Error{Timeout} names the ranks that did not take part, where they can be known;
/// Error{Peer}: one has died. After such an error every later call throws.
namespace lockstep::distributed {

struct InitOptions {
  std::string backend = "gloo";         ///< the only one so far
  double timeout = 1800;                ///< seconds that a collective waits at most
  double join_timeout = 60;             ///< seconds in which all processes must have started
};

/// Joins the other processes: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (and LOCAL_RANK, LOCAL_WORLD_SIZE) say where and how
/// many, as torchrun and `lockstep run` set them. Without RANK and WORLD_SIZE this process is the only one.
/// Throws Error{Usage} for a backend that is not there, for variables that are missing or contradict each other, and when it
/// was called before; Error{Timeout} that lists present and missing ranks.
LOCKSTEP_API void init(const InitOptions& options = {});
LOCKSTEP_API bool is_initialized();
/// Leaves the group. No Trainer may be in use.
LOCKSTEP_API void destroy();

/// From the environment until init() was called.
LOCKSTEP_API int rank();
LOCKSTEP_API int world_size();
LOCKSTEP_API int local_rank();

enum class ReduceOp { Sum, Max, Min };

/// In place. The same number of values on all ranks (Error{Usage} otherwise). Sums of integers are exact; those of floats depend
/// on the number of ranks, as everywhere.
LOCKSTEP_API void all_reduce(std::span<float> values, ReduceOp op = ReduceOp::Sum);
LOCKSTEP_API void all_reduce(std::span<double> values, ReduceOp op = ReduceOp::Sum);
LOCKSTEP_API void all_reduce(std::span<int64_t> values, ReduceOp op = ReduceOp::Sum);

/// What every rank has, by rank. Ranks may have different numbers of values.
LOCKSTEP_API std::vector<std::vector<float>> all_gather(std::span<const float> mine);
LOCKSTEP_API std::vector<std::vector<double>> all_gather(std::span<const double> mine);
LOCKSTEP_API std::vector<std::vector<int64_t>> all_gather(std::span<const int64_t> mine);
LOCKSTEP_API std::vector<std::string> all_gather(const std::string& mine);

/// `values` of rank `root` on all. The same number of values on all ranks.
LOCKSTEP_API void broadcast(std::span<float> values, int root = 0);
LOCKSTEP_API void broadcast(std::span<double> values, int root = 0);
LOCKSTEP_API void broadcast(std::span<int64_t> values, int root = 0);

/// Returns when all ranks have called it.
LOCKSTEP_API void barrier();

}  // namespace lockstep::distributed
