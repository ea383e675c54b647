#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gather_text.h"
#include "lockstep/comm/shared_memory/rings.h"

#include "lockstep/base/error.h"
#include "lockstep/base/huge_page.h"
#include "lockstep/base/log.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <climits>
#include <unistd.h>

namespace lockstep::comm {
namespace {

/// Slots that a rank fills from the one it reads on: by so much may two ranks be apart before one waits.
constexpr int64_t kAhead = 4;
static_assert(kAhead < int64_t{kSlots}, "a slot is filled again when all have read it");

/// Elements of a tensor that travel at a time.
struct Pieces {
  int64_t total = 0;
  int64_t each = 0;
  int64_t count() const { return (total + each - 1) / each; }
  int64_t begin(int64_t i) const { return i * each; }
  int64_t size(int64_t i) const { return std::min(each, total - begin(i)); }
};

/// Collective. What went wrong on the first rank where `work` failed; empty when it did on none.
template <class Work>
std::string first_problem(Communicator& comm, const char* what, const Work& work) {
  std::string mine;
  try {
    work();
  } catch (const Error& problem) {
    mine = fmt::format("rank {}: {}", comm.rank(), problem.what());
  }
  for (const std::string& theirs : comm.all_gather_text(mine, what)) {
    if (!theirs.empty()) return theirs;
  }
  return {};
}

/// Throws Error{Environment} where the kernel gives small pages alone: those of a model are a burden on every access.
void require_huge_pages(const SharedFile& file) {
  if (file.memory().size() >= kHugePageBytes && !take_huge_page(file.memory().data())) {
    throw Error::environment("the kernel has no huge pages for memory that processes share");
  }
}

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(std::unique_ptr<Communicator> bootstrap, SharedSegment segment, bool only_rings)
      : bootstrap_(std::move(bootstrap)),
        rings_(std::move(segment), bootstrap_->rank(), bootstrap_->timeout()),
        only_rings_(only_rings) {}

  int rank() const override { return rings_.rank(); }
  int size() const override { return rings_.size(); }
  Milliseconds timeout() const override { return rings_.timeout(); }

  void all_reduce_sum(at::Tensor& values, const char* what) override {
    all_reduce(values, what, [](at::Tensor& sum, const at::Tensor& next) { sum.add_(next); });
  }
  void all_reduce_max(at::Tensor& values, const char* what) override {
    all_reduce(values, what, [](at::Tensor& largest, const at::Tensor& next) { at::maximum_out(largest, largest, next); });
  }

  // A slot holds a piece for each other rank. An owner adds what the others' slots hold for it where it lies.
  void reduce_scatter_sum(at::Tensor& values, at::Tensor& shard, const char* what) override {
    const int64_t n = shard.numel();
    LS_CHECK(values.numel() == n * size(), "{}: {} elements, shards of {}, {} ranks", what, values.numel(), n, size());
    call(what, [&] {
      const at::Tensor values_WN = values.view({size(), n});
      const at::Tensor own = values_WN.select(0, rank());
      if (own.data_ptr() != shard.data_ptr()) shard.copy_(own);
      const auto element = static_cast<size_t>(values.element_size());
      const Pieces pieces{n, static_cast<int64_t>(rings_.slot_bytes() / (element * static_cast<size_t>(size() - 1)))};
      LS_CHECK(pieces.each > 0, "{} ranks are too many for a slot", size());
      ahead(pieces, [&](int64_t i) { post_for_owners(values_WN, pieces, i); },
            [&](int64_t i) {
              at::Tensor sum = shard.narrow(0, pieces.begin(i), pieces.size(i));
              add_own_pieces(sum);
            });
    });
  }

  void all_gather(const at::Tensor& shard, at::Tensor& values, const char* what) override {
    const int64_t n = shard.numel();
    LS_CHECK(values.numel() == n * size(), "{}: {} elements, shards of {}, {} ranks", what, values.numel(), n, size());
    call(what, [&] {
      const Pieces pieces = whole_slots(static_cast<int64_t>(shard.nbytes()));
      const std::byte* from = bytes_at(shard);
      std::byte* to = bytes_at(values);
      ahead(pieces, [&](int64_t i) { post_bytes(from, pieces, i); },
            [&](int64_t i) {
              for (int peer = 0; peer < size(); ++peer) {
                if (peer != rank()) take_bytes(peer, to + pieces.total * peer, pieces, i);
              }
            });
      if (std::byte* own = to + pieces.total * rank(); own != from && n > 0) std::memcpy(own, from, shard.nbytes());
    });
  }

  void broadcast(at::Tensor& values, int root, const char* what) override {
    call(what, [&] {
      const Pieces pieces = whole_slots(static_cast<int64_t>(values.nbytes()));
      for (int64_t i = 0; i < pieces.count(); ++i) {
        if (rank() == root) {
          post_bytes(bytes_at(values), pieces, i);
        } else {
          take_bytes(root, bytes_at(values), pieces, i);
        }
      }
    });
  }

  std::vector<std::string> all_gather_text(const std::string& mine, const char* what) override {
    return gather_text_as_tensors(*this, mine, what);
  }

  void barrier(const char* what) override {
    call(what, [&] {
      rings_.next_slot();
      rings_.post(0);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank()) continue;
        rings_.take(peer, 0);
        rings_.done(peer);
      }
    });
  }

  std::vector<at::Tensor> share_bytes(int64_t bytes, const char* what) override {
    if (only_rings_) return {};
    std::shared_ptr<SharedFile> own;
    std::string problem = first_problem(*this, what, [&] {
      if (bytes == 0) return;
      own = std::make_shared<SharedFile>(SharedFile::create(static_cast<size_t>(bytes), SharedFile::Take::AtWrite));
      require_huge_pages(*own);
    });
    std::vector<at::Tensor> of_rank;
    if (problem.empty()) {
      const auto sizes = all_gather_text(std::to_string(bytes), what);
      const auto addresses = all_gather_text(own ? own->address() : "", what);
      problem = first_problem(*this, what, [&] {
        for (int peer = 0; peer < size(); ++peer) {
          const auto index = static_cast<size_t>(peer);
          of_rank.push_back(peer == rank() ? tensor_over(own) : opened(addresses[index], std::stoull(sizes[index])));
        }
      });
    }
    if (problem.empty()) return of_rank;
    log::debug("comm", "{}: each process has its own memory, copied where it must be: {}", what, problem);
    return {};
  }

 private:
  /// Lives as long as the tensor or a part of it.
  static at::Tensor tensor_over(std::shared_ptr<SharedFile> file) {
    if (!file) return at::empty({0}, at::kByte);
    const std::span<std::byte> memory = file->memory();
    return at::from_blob(memory.data(), {std::ssize(memory)}, [file = std::move(file)](void*) {}, at::kByte);
  }
  static at::Tensor opened(const std::string& address, size_t bytes) {
    if (bytes == 0) return tensor_over(nullptr);
    return tensor_over(std::make_shared<SharedFile>(SharedFile::open(address, bytes)));
  }

  static std::byte* bytes_at(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

  Pieces whole_slots(int64_t bytes) const { return {bytes, static_cast<int64_t>(rings_.slot_bytes())}; }

  /// Runs one collective. After an error the ranks no longer agree about what lies in the slots.
  template <class Work>
  void call(const char* what, const Work& work) {
    if (!broken_.empty()) throw Error::peer("{}: an earlier collective failed ({})", what, broken_);
    rings_.enter(what);
    try {
      work();
    } catch (...) {
      broken_ = what;
      throw;
    }
    rings_.leave();
  }

  /// post(i) for all pieces, a little ahead of take(i).
  template <class Post, class Take>
  static void ahead(const Pieces& pieces, const Post& post, const Take& take) {
    const int64_t count = pieces.count();
    int64_t posted = 0;
    for (int64_t i = 0; i < count; ++i) {
      for (; posted < std::min(count, i + kAhead); ++posted) post(posted);
      take(i);
    }
  }

  void post_bytes(const std::byte* from, const Pieces& pieces, int64_t i) {
    const std::span<std::byte> slot = rings_.next_slot();
    const auto bytes = static_cast<size_t>(pieces.size(i));
    std::memcpy(slot.data(), from + pieces.begin(i), bytes);
    rings_.post(bytes);
  }

  void take_bytes(int peer, std::byte* to, const Pieces& pieces, int64_t i) {
    const std::span<const std::byte> slot = rings_.take(peer, static_cast<size_t>(pieces.size(i)));
    std::memcpy(to + pieces.begin(i), slot.data(), slot.size());
    rings_.done(peer);
  }

  void post_for_owners(const at::Tensor& values_WN, const Pieces& pieces, int64_t i) {
    const auto element = static_cast<size_t>(values_WN.element_size());
    const size_t bytes = element * static_cast<size_t>(pieces.size(i));
    std::byte* to = rings_.next_slot().data();
    for (int owner = 0; owner < size(); ++owner) {
      if (owner == rank()) continue;
      const int64_t at = owner * pieces.total + pieces.begin(i);
      std::memcpy(to, bytes_at(values_WN) + element * static_cast<size_t>(at), bytes);
      to += bytes;
    }
    rings_.post(bytes * static_cast<size_t>(size() - 1));
  }

  /// In rank order, so that float sums have one value: what comes before this rank is added up where it lies first.
  void add_own_pieces(at::Tensor& sum) {
    const size_t bytes = static_cast<size_t>(sum.nbytes());
    std::optional<at::Tensor> before;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() && before) sum.add_(*before);
      if (peer == rank()) continue;
      const std::span<std::byte> slot = rings_.take(peer, bytes * static_cast<size_t>(size() - 1));
      const int place = rank() < peer ? rank() : rank() - 1;
      const at::Tensor piece = at::from_blob(slot.data() + bytes * static_cast<size_t>(place), {sum.numel()}, sum.options());
      if (peer > rank()) {
        sum.add_(piece);
      } else if (before) {
        before->add_(piece);
      } else {
        before = piece;
      }
    }
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) rings_.done(peer);
    }
  }

  /// Every rank combines all values in rank order, so all get the same, floats too.
  template <class Combine>
  void all_reduce(at::Tensor& values, const char* what, const Combine& combine) {
    call(what, [&] {
      const auto element = static_cast<int64_t>(values.element_size());
      const Pieces pieces{values.numel(), static_cast<int64_t>(rings_.slot_bytes()) / element};
      for (int64_t i = 0; i < pieces.count(); ++i) {
        const std::span<std::byte> mine = rings_.next_slot();
        at::Tensor result = values.view({-1}).narrow(0, pieces.begin(i), pieces.size(i));
        const size_t bytes = static_cast<size_t>(result.nbytes());
        std::memcpy(mine.data(), result.data_ptr(), bytes);
        rings_.post(bytes);
        for (int peer = 0; peer < size(); ++peer) {
          const std::span<std::byte> slot = peer == rank() ? mine : rings_.take(peer, bytes);
          const at::Tensor theirs = at::from_blob(slot.data(), {result.numel()}, result.options());
          if (peer == 0) {
            result.copy_(theirs);
          } else {
            combine(result, theirs);
          }
          if (peer != rank()) rings_.done(peer);
        }
      }
    });
  }

  std::unique_ptr<Communicator> bootstrap_;  ///< a store that this rank opened lives as long
  Rings rings_;
  const bool only_rings_;
  std::string broken_;
};

std::string link_target(const char* path) {
  char target[PATH_MAX] = {};
  return readlink(path, target, sizeof(target) - 1) > 0 ? target : "";
}

/// Equal for processes that can reach each other's memory. A container with a network of its own counts as a host.
std::string host_identity(int rank) {
  try {
    return read_file("/proc/sys/kernel/random/boot_id", ErrorKind::Environment) + link_target("/proc/self/ns/pid") +
           link_target("/proc/self/ns/net");
  } catch (const Error&) {
    return fmt::format("rank {} cannot tell", rank);  // nobody shares a host with it then
  }
}

}  // namespace

std::vector<at::Tensor> Communicator::share_bytes(int64_t /*bytes*/, const char* /*what*/) { return {}; }

SharedMemoryResult make_shared_memory(std::unique_ptr<Communicator> bootstrap, bool only_rings) {
  Communicator& comm = *bootstrap;
  if (comm.size() == 1) return {std::move(bootstrap), "one process"};
  const std::vector<std::string> hosts = comm.all_gather_text(host_identity(comm.rank()), "who shares a host");
  if (std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host != hosts[0]; })) {
    return {std::move(bootstrap), "the processes are on several hosts"};
  }
  const SegmentShape shape = SegmentShape::of(comm.size());
  std::optional<SharedSegment> segment;
  std::string problem = first_problem(comm, "making shared memory", [&] {
    if (comm.rank() == 0) segment.emplace(SharedSegment::create(shape));
  });
  if (!problem.empty()) return {std::move(bootstrap), problem};
  const std::string address = comm.all_gather_text(segment ? segment->address() : "", "finding shared memory")[0];
  problem = first_problem(comm, "opening shared memory", [&] {
    if (!segment) segment.emplace(SharedSegment::open(address, shape));
    segment->come_alive(comm.rank());
  });
  if (!problem.empty()) return {std::move(bootstrap), problem};
  return {std::make_unique<SharedMemoryCommunicator>(std::move(bootstrap), std::move(*segment), only_rings), ""};
}

}  // namespace lockstep::comm
