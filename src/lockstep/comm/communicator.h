#pragma once

#include "lockstep/base/deadline.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace lockstep::comm {

/// The processes of one axis. Every call is collective over the axis: all ranks make the same calls in the same
/// order, from one thread at a time. A call blocks at most `timeout()`, then throws Error{Timeout} that names the call
/// and the ranks that did not take part, where they can be known; a closed peer is Error{Peer} within 2 s. After an
/// error the communicator is broken and every later call throws. Tensors are contiguous; nothing is said about where
/// they live.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Milliseconds timeout() const = 0;

  /// In place. int64, float32, float64. int64 sums are exact in any order; float sums are not promised to be.
  virtual void all_reduce_sum(at::Tensor& values, const char* what) = 0;
  /// In place. int64.
  virtual void all_reduce_max(at::Tensor& values, const char* what) = 0;
  /// `shard` (n elements) = elements [rank * n, (rank + 1) * n) of the sum over ranks of `values` (size() * n).
  /// `values` is left in an unspecified state; `shard` may be its own slice. int64 and float32; float32 adds in rank
  /// order.
  virtual void reduce_scatter_sum(at::Tensor& values, at::Tensor& shard, const char* what) = 0;
  /// `values` (size() * n) = the ranks' shards (n each) in rank order. Any dtype. `shard` may be the rank's own slice
  /// of `values`.
  virtual void all_gather(const at::Tensor& shard, at::Tensor& values, const char* what) = 0;
  virtual void broadcast(at::Tensor& values, int root, const char* what) = 0;
  /// Small texts (control data), in rank order.
  virtual std::vector<std::string> all_gather_text(const std::string& mine, const char* what) = 0;
  virtual void barrier(const char* what) = 0;

  /// For each rank `bytes` (each says its own; 0 for none) of zeros that all ranks of the axis read and write where they lie:
  /// flat at::kByte tensors, by rank, which begin at a multiple of a huge page and become huge pages by take_huge_page()
  /// (base/huge_page.h). Nothing orders what ranks do there but their other calls. Empty, on all ranks, where they cannot
  /// have it: several hosts, or a kernel without huge pages of this kind.
  virtual std::vector<at::Tensor> share_bytes(int64_t bytes, const char* what);
};

/// One rank: every collective is a copy or nothing. Callers never branch on the size.
std::unique_ptr<Communicator> make_self();

/// `size` communicators that meet in memory, one per thread; for tests of what is written above this interface.
std::vector<std::unique_ptr<Communicator>> make_threads(int size, Milliseconds timeout);

/// How int64 sums travel in reduce_scatter_sum: as they are, or packed (packed_sums.h). Auto: what the first large call
/// finds to be faster. Results are the same.
enum class Wire { Auto, Raw, Packed };

struct GlooOptions {
  int rank = 0;
  int size = 1;
  /// Where the ranks find each other. One node: a path all ranks can write to, unique to the run; created if absent.
  std::string store_file = {};
  /// Several nodes: a TCPStore that runs already, in place of store_file when the port is not 0.
  std::string master_addr = {};
  uint16_t master_port = 0;
  /// That store is this rank's to open, and lives as long as its communicator.
  bool opens_store = false;
  /// Of this attempt: ranks of an earlier one may have left their traces in the same TCPStore.
  int restart_count = 0;
  /// Of this node, numeric: where the other ranks reach this one.
  std::string own_addr = "127.0.0.1";
  Milliseconds join_timeout{60'000};
  Milliseconds timeout{1'800'000};
  Wire wire = Wire::Auto;  ///< the same on all ranks
};
/// Processes over TCP (loopback) through libtorch's Gloo. Throws Error{Timeout} that lists present and missing ranks
/// if not all have joined by join_timeout. While one lives, SIGPIPE is ignored where it would have ended the process.
std::unique_ptr<Communicator> make_gloo(const GlooOptions& options);

struct SharedMemoryResult {
  std::unique_ptr<Communicator> comm;
  std::string why_not;  ///< the ranks cannot share memory, and `comm` is what was handed over; the same on all ranks
};
/// Collective over `bootstrap`, which lives on inside. Ranks (processes, or threads in tests) of one host meet in memory that
/// has no name and no size limit but the processes' own, and leave nothing behind however they end. Waiting ranks sleep.
/// Float sums of every call are in rank order. 8 MiB per rank, less with many. `only_rings`: share_bytes() gives nothing.
SharedMemoryResult make_shared_memory(std::unique_ptr<Communicator> bootstrap, bool only_rings = false);

/// What carries tensors between processes. Sums are the same bits.
enum class Carrier { Auto, SharedMemory, SharedRings, Gloo, GlooRaw, GlooPacked };
/// "auto", "shm", "shm-rings" (all is copied, as where there are no huge pages to share), "gloo", "gloo-raw" or
/// "gloo-packed". Throws Error{Usage}.
Carrier carrier_from_name(std::string_view name);
/// LOCKSTEP_COMM; Auto where it is not set.
Carrier carrier_of_environment();
/// Processes meet by gloo; Auto then goes on through shared memory where all are on one host. Throws what make_gloo throws,
/// Error{Environment} when SharedMemory cannot be had, and Error{Usage} when the ranks want different carriers.
std::unique_ptr<Communicator> make_processes(GlooOptions options, Carrier carrier);

}  // namespace lockstep::comm
