#include "lockstep/library/distributed.h"

#include "lockstep/base/error.h"
#include "lockstep/library/process.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace lockstep::distributed {
namespace {

using library::Group;

Group& joined(const char* call) {
  if (Group* const group = library::group_of_process()) return *group;
  throw Error::usage("distributed::{}() before distributed::init(). Call init() first, or let a Trainer do it.", call);
}

template <class T>
at::ScalarType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return at::kFloat;
  if constexpr (std::is_same_v<T, double>) return at::kDouble;
  return at::kLong;
}

template <class T>
at::Tensor tensor_over(std::span<T> values) {
  return at::from_blob(values.data(), {std::ssize(values)}, at::TensorOptions(dtype_of<T>()));
}

/// Ranks that give different numbers of values would wait for each other, or worse.
void require_equal_counts(comm::Communicator& comm, size_t count, const char* call) {
  at::Tensor ends = at::empty({2}, at::kLong);
  auto* end = ends.data_ptr<int64_t>();
  end[0] = static_cast<int64_t>(count);
  end[1] = -static_cast<int64_t>(count);
  comm.all_reduce_max(ends, call);
  if (end[0] == -end[1]) return;
  throw Error::usage("distributed::{}(): rank {} gives {} values, others from {} to {}. All ranks must give the same number.", call,
                     comm.rank(), count, -end[1], end[0]);
}

template <class T>
std::vector<std::vector<T>> gather(std::span<const T> mine, const char* call) {
  comm::Communicator& comm = *joined(call).comm;
  const auto bytes = std::as_bytes(mine);
  std::vector<std::vector<T>> all;
  library::with_our_errors([&] {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (const std::string& of_rank : comm.all_gather_text(text, call)) {
      std::vector<T>& values = all.emplace_back(of_rank.size() / sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), of_rank.data(), of_rank.size());
    }
  });
  return all;
}

template <class T>
void reduce(std::span<T> values, ReduceOp op) {
  constexpr const char* kCall = "all_reduce";
  comm::Communicator& comm = *joined(kCall).comm;
  if (comm.size() == 1) return;
  library::with_our_errors([&] {
    require_equal_counts(comm, values.size(), kCall);
    if (values.empty()) return;
    if (op == ReduceOp::Sum) {
      at::Tensor tensor = tensor_over(values);
      comm.all_reduce_sum(tensor, kCall);
      return;
    }
    for (const std::vector<T>& of_rank : gather(std::span<const T>(values), kCall)) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = op == ReduceOp::Max ? std::max(values[i], of_rank[i]) : std::min(values[i], of_rank[i]);
      }
    }
  });
}

template <class T>
void spread(std::span<T> values, int root) {
  constexpr const char* kCall = "broadcast";
  comm::Communicator& comm = *joined(kCall).comm;
  if (root < 0 || root >= comm.size()) {
    throw Error::usage("distributed::broadcast(): root = {}: ranks go from 0 to {}.", root, comm.size() - 1);
  }
  if (comm.size() == 1) return;
  library::with_our_errors([&] {
    require_equal_counts(comm, values.size(), kCall);
    if (values.empty()) return;
    at::Tensor tensor = tensor_over(values);
    comm.broadcast(tensor, root, kCall);
  });
}

}  // namespace

void init(const InitOptions& options) {
  if (is_initialized()) {
    throw Error::usage("distributed::init() was called before (or a Trainer did). A process is in one group at a time; "
                       "distributed::destroy() leaves it.");
  }
  library::join_group(options);
}

bool is_initialized() { return library::group_of_process() != nullptr; }
void destroy() { library::leave_group(); }

int rank() { return is_initialized() ? joined("rank").comm->rank() : library::environment_of_process().world_rank; }
int world_size() { return is_initialized() ? joined("world_size").comm->size() : library::environment_of_process().world_size; }
int local_rank() {
  return is_initialized() ? joined("local_rank").environment.local_rank : library::environment_of_process().local_rank;
}

void all_reduce(std::span<float> values, ReduceOp op) { reduce(values, op); }
void all_reduce(std::span<double> values, ReduceOp op) { reduce(values, op); }
void all_reduce(std::span<int64_t> values, ReduceOp op) { reduce(values, op); }

std::vector<std::vector<float>> all_gather(std::span<const float> mine) { return gather(mine, "all_gather"); }
std::vector<std::vector<double>> all_gather(std::span<const double> mine) { return gather(mine, "all_gather"); }
std::vector<std::vector<int64_t>> all_gather(std::span<const int64_t> mine) { return gather(mine, "all_gather"); }
std::vector<std::string> all_gather(const std::string& mine) {
  std::vector<std::string> all;
  comm::Communicator& comm = *joined("all_gather").comm;
  library::with_our_errors([&] { all = comm.all_gather_text(mine, "all_gather"); });
  return all;
}

void broadcast(std::span<float> values, int root) { spread(values, root); }
void broadcast(std::span<double> values, int root) { spread(values, root); }
void broadcast(std::span<int64_t> values, int root) { spread(values, root); }

void barrier() {
  comm::Communicator& comm = *joined("barrier").comm;
  library::with_our_errors([&] { comm.barrier("barrier"); });
}

}  // namespace lockstep::distributed
