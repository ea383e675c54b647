// All of libtorch's c10d and Gloo headers are confined to this file (8 s to compile).
#include "lockstep/comm/communicator.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/gather_text.h"
#include "lockstep/comm/packed_sums.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep::comm {
namespace {

// torch 2.15 renamed the flat collectives; the older spelling is that of 2.11.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define LS_ALL_GATHER all_gather_single
#define LS_ALL_TO_ALL all_to_all_single
#else
#define LS_ALL_GATHER _allgather_base
#define LS_ALL_TO_ALL alltoall_base
#endif

/// Elements of a shard that travel in one exchange of reduce_scatter_sum: bounds the staging memory to
/// 2 * size * 8 MiB for int64.
constexpr int64_t kExchangeElements = int64_t{1} << 20;
/// Of a shard, sent raw and packed once to see what is faster: 2 MiB.
constexpr int64_t kTrialElements = int64_t{1} << 18;
/// A longer wait says for whom.
constexpr Milliseconds kReport{5'000};

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// What c10d throws goes on with a backtrace.
std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

c10::intrusive_ptr<c10d::Store> open_store(const GlooOptions& options) {
  if (options.master_port == 0) return c10::make_intrusive<c10d::FileStore>(options.store_file, options.size);
  c10d::TCPStoreOptions tcp;
  tcp.port = options.master_port;
  tcp.isServer = options.opens_store;
  tcp.waitWorkers = false;
  tcp.timeout = options.join_timeout;
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("lockstep/{}", options.restart_count),
        c10::make_intrusive<c10d::TCPStore>(options.master_addr, tcp));
  } catch (const std::exception& problem) {
    if (options.opens_store) {
      throw Error::environment("rank {} cannot open the store in which the ranks meet at {}:{}: {}. Is the port taken by another "
                               "program? Choose another MASTER_PORT.",
                               options.rank, options.master_addr, options.master_port, first_line(problem.what()));
    }
    throw Error::peer("rank {} of {} cannot reach the store at {}:{}: {}. Is a firewall between the nodes? `lockstep doctor "
                      "--rdzv_endpoint HOST:PORT` looks.",
                      options.rank, options.size, options.master_addr, options.master_port, first_line(problem.what()));
  }
}

std::string ranks_text(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, " ")); }

/// While it lives, a write to a connection that the other side has closed is an error of that write. Gloo and the store's
/// client write without asking for that, and a process that leaves SIGPIPE as it is would end without a word.
class ClosedConnectionsAreErrors {
 public:
  ClosedConnectionsAreErrors() {
    sigaction(SIGPIPE, nullptr, &before_);
    if (before_.sa_handler == SIG_DFL) set(SIG_IGN);
  }
  ClosedConnectionsAreErrors(const ClosedConnectionsAreErrors&) = delete;
  ClosedConnectionsAreErrors& operator=(const ClosedConnectionsAreErrors&) = delete;
  ~ClosedConnectionsAreErrors() {
    struct sigaction now = {};
    sigaction(SIGPIPE, nullptr, &now);
    if (before_.sa_handler == SIG_DFL && now.sa_handler == SIG_IGN) set(SIG_DFL);
  }

 private:
  static void set(void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    sigaction(SIGPIPE, &action, nullptr);
  }
  struct sigaction before_ = {};
};

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const GlooOptions& options) : options_(options) {
    store_ = open_store(options);
    join();
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.join_timeout);
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.own_addr));
    guard("connecting the ranks", [&] {
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>("gloo", store_), options.rank, options.size, gloo);
      group_->setTimeout(options_.timeout);
    });
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Milliseconds timeout() const override { return options_.timeout; }

  void all_reduce_sum(at::Tensor& values, const char* what) override {
    all_reduce(values, c10d::ReduceOp::SUM, what);
  }
  void all_reduce_max(at::Tensor& values, const char* what) override {
    all_reduce(values, c10d::ReduceOp::MAX, what);
  }

  // Built on all-to-all: Gloo's own reduce_scatter is one all-reduce per rank. A rank's own part stays where it is; while
  // one piece is added, the next is on its way.
  void reduce_scatter_sum(at::Tensor& values, at::Tensor& shard, const char* what) override {
    const int64_t n = shard.numel();
    LS_CHECK(values.numel() == n * size(), "{}: {} elements, shards of {}, {} ranks", what, values.numel(), n, size());
    const at::Tensor values_WN = values.view({size(), n});
    const at::Tensor own = values_WN.select(0, rank());
    if (own.data_ptr() != shard.data_ptr()) shard.copy_(own);
    if (size() == 1) return;
    const Wire wire = wire_for(values_WN, what);
    Exchange last;
    for (int64_t begin = 0; begin < n; begin += kExchangeElements) {
      Exchange next = exchange(wire, values_WN, begin, std::min(kExchangeElements, n - begin), what);
      add_received(last, shard, what);
      last = std::move(next);
    }
    add_received(last, shard, what);
  }

  void all_gather(const at::Tensor& shard, at::Tensor& values, const char* what) override {
    const int64_t n = shard.numel();
    LS_CHECK(values.numel() == n * size(), "{}: {} elements, shards of {}, {} ranks", what, values.numel(), n, size());
    if (n == 0) return;
    // Gloo writes the whole output: an input inside it is copied first.
    const auto* begin = static_cast<const std::byte*>(values.data_ptr());
    const auto* at = static_cast<const std::byte*>(shard.data_ptr());
    at::Tensor input = at >= begin && at < begin + values.nbytes() ? shard.clone() : shard;
    guard(what, [&] { group_->LS_ALL_GATHER(values, input)->wait(); });
  }

  void broadcast(at::Tensor& values, int root, const char* what) override {
    guard(what, [&] {
      std::vector<at::Tensor> tensors{values};
      c10d::BroadcastOptions broadcast;
      broadcast.rootRank = root;
      group_->broadcast(tensors, broadcast)->wait();
    });
  }

  std::vector<std::string> all_gather_text(const std::string& mine, const char* what) override {
    return gather_text_as_tensors(*this, mine, what);
  }

  void barrier(const char* what) override {
    guard(what, [&] { group_->barrier()->wait(); });
  }

 private:
  /// A piece of every other rank's part under way to it, and of this rank's part from all others.
  struct Exchange {
    int64_t begin = 0;
    int64_t count = 0;
    at::Tensor send, receive;
    std::vector<int64_t> words;  ///< packed: received from each other rank; raw: empty, and all are `count` elements
    c10::intrusive_ptr<c10d::Work> work;
  };

  Exchange exchange(Wire wire, const at::Tensor& values_WN, int64_t begin, int64_t count, const char* what) {
    return wire == Wire::Packed ? exchange_packed(values_WN, begin, count, what) : exchange_raw(values_WN, begin, count, what);
  }

  Exchange exchange_raw(const at::Tensor& values_WN, int64_t begin, int64_t count, const char* what) {
    const auto element = static_cast<int64_t>(values_WN.element_size());
    const int64_t room = (size() - 1) * kExchangeElements * element;
    const auto staged = [&](Staging& buffers) {
      return staging(buffers, room).view(values_WN.scalar_type()).narrow(0, 0, (size() - 1) * count).view({size() - 1, count});
    };
    Exchange result{begin, count, {}, staged(receiving_), {}, {}};
    if (size() == 2) {
      result.send = values_WN.select(0, 1 - rank()).narrow(0, begin, count);  // lies in one piece already
    } else {
      result.send = staged(sending_);
      for (int peer = 0, row = 0; peer < size(); ++peer) {
        if (peer != rank()) result.send.select(0, row++).copy_(values_WN.select(0, peer).narrow(0, begin, count));
      }
    }
    const std::vector<int64_t> counts(static_cast<size_t>(size() - 1), count);
    start(result, counts, counts, what);
    return result;
  }

  /// The sizes go first, as each part has its own.
  Exchange exchange_packed(const at::Tensor& values_WN, int64_t begin, int64_t count, const char* what) {
    const auto most = static_cast<int64_t>(packed_words_at_most(static_cast<size_t>(kExchangeElements)));
    const int64_t room = (size() - 1) * most * int64_t{sizeof(int64_t)};
    Exchange result{begin, count, staging(sending_, room).view(at::kLong), staging(receiving_, room).view(at::kLong), {}, {}};
    auto* to = reinterpret_cast<uint64_t*>(result.send.data_ptr());
    std::vector<int64_t> sent;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const auto* from = values_WN.select(0, peer).data_ptr<int64_t>() + begin;
      const auto words = pack_sums({from, static_cast<size_t>(count)}, {to, packed_words_at_most(static_cast<size_t>(count))});
      sent.push_back(static_cast<int64_t>(words));
      to += words;
    }
    result.words = exchange_sizes(sent, what);
    const auto narrow = [](at::Tensor& words, const std::vector<int64_t>& counts) {
      words = words.narrow(0, 0, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    };
    narrow(result.send, sent);
    narrow(result.receive, result.words);
    start(result, sent, result.words, what);
    return result;
  }

  /// From each other rank, in rank order, what it sends to this one.
  std::vector<int64_t> exchange_sizes(const std::vector<int64_t>& sent, const char* what) {
    Exchange sizes;
    sizes.send = at::empty({size() - 1}, at::kLong);
    sizes.receive = at::empty({size() - 1}, at::kLong);
    std::copy(sent.begin(), sent.end(), sizes.send.data_ptr<int64_t>());
    const std::vector<int64_t> ones(sent.size(), 1);
    start(sizes, ones, ones, what);
    guard(what, [&] { sizes.work->wait(); });
    const int64_t* received = sizes.receive.data_ptr<int64_t>();
    return {received, received + sent.size()};
  }

  /// `sent` and `received`: elements to and from each other rank.
  void start(Exchange& exchange, std::vector<int64_t> sent, std::vector<int64_t> received, const char* what) {
    sent.insert(sent.begin() + rank(), 0);  // c10d takes both over
    received.insert(received.begin() + rank(), 0);
    at::Tensor send = exchange.send.view({-1}), receive = exchange.receive.view({-1});
    guard(what, [&] { exchange.work = group_->LS_ALL_TO_ALL(receive, send, received, sent); });
  }

  void add_received(const Exchange& done, at::Tensor& shard, const char* what) {
    if (!done.work) return;
    guard(what, [&] { done.work->wait(); });
    at::Tensor sum = shard.narrow(0, done.begin, done.count);
    if (!done.words.empty()) return add_packed(done, sum, what);
    // In rank order: what comes before this rank is added up first.
    at::Tensor before = done.receive.select(0, 0);
    for (int row = 1; row < rank(); ++row) before.add_(done.receive.select(0, row));
    if (rank() > 0) sum.add_(before);
    for (int row = rank(); row < size() - 1; ++row) sum.add_(done.receive.select(0, row));
  }

  static void add_packed(const Exchange& done, at::Tensor& sum, const char* what) {
    const auto* from = reinterpret_cast<const uint64_t*>(done.receive.data_ptr());
    for (const int64_t words : done.words) {
      const std::span<int64_t> sums(sum.data_ptr<int64_t>(), static_cast<size_t>(sum.numel()));
      const bool is_whole = add_packed_sums({from, static_cast<size_t>(words)}, sums);
      LS_CHECK(is_whole, "{}: {} packed words are not {} values", what, words, sum.numel());
      from += words;
    }
  }

  /// Packed where that is known to be faster; the sums are the same.
  Wire wire_for(const at::Tensor& values_WN, const char* what) {
    if (values_WN.scalar_type() != at::kLong) return Wire::Raw;
    if (options_.wire == Wire::Auto && values_WN.size(1) >= kTrialElements) options_.wire = try_wires(values_WN, what);
    return options_.wire == Wire::Packed ? Wire::Packed : Wire::Raw;
  }

  /// Sends the beginning of what is to be reduced both ways, twice each, and takes what was faster for all ranks together: the
  /// same on every rank, as all add the same times. The first round only warms up.
  Wire try_wires(const at::Tensor& values_WN, const char* what) {
    at::Tensor micros = at::zeros({2}, at::kLong), scratch = at::zeros({kTrialElements}, at::kLong);
    for (const bool counts : {false, true}) {
      for (const Wire wire : {Wire::Raw, Wire::Packed}) {
        barrier(what);
        const Clock::time_point start = Clock::now();
        add_received(exchange(wire, values_WN, 0, kTrialElements, what), scratch, what);
        const int64_t took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
        if (counts) micros.data_ptr<int64_t>()[wire == Wire::Packed ? 1 : 0] = took;
      }
    }
    all_reduce_sum(micros, what);
    const int64_t raw = micros.data_ptr<int64_t>()[0], packed = micros.data_ptr<int64_t>()[1];
    log::debug("comm", "sums travel {}: {} us packed against {} us as they are", packed < raw ? "packed" : "as they are",
               packed / size(), raw / size());
    return packed < raw ? Wire::Packed : Wire::Raw;
  }

  /// Two buffers that take turns and are kept: fresh ones would cost more in cleared pages than the copy itself.
  using Staging = std::array<at::Tensor, 2>;
  static at::Tensor staging(Staging& buffers, int64_t bytes) {
    std::swap(buffers[0], buffers[1]);
    at::Tensor& kept = buffers[0];
    if (!kept.defined() || kept.numel() < bytes) kept = at::empty({bytes}, at::kByte);
    return kept.narrow(0, 0, bytes);
  }

  /// Every rank says that it is here; the last one to arrive ends the wait of all.
  void join() {
    const Deadline deadline = Deadline::in(options_.join_timeout);
    std::vector<std::string> keys;
    for (int peer = 0; peer < size(); ++peer) keys.push_back(fmt::format("joined/{}", peer));
    const Clock::time_point start = Clock::now();
    try {
      store_->set(keys[static_cast<size_t>(rank())], bytes_of("1"));
      while (!wait_for(keys, std::clamp(deadline.remaining(), Milliseconds(1), kReport))) {
        const std::vector<int> missing = ranks_without("joined");
        if (missing.empty()) return;
        if (deadline.passed()) throw not_joined(missing);
        log::info("comm", "waiting for rank(s) {} to join for {:.0f} s ({} s left)", ranks_text(missing),
                  seconds_since(start), deadline.remaining().count() / 1000);
      }
    } catch (const c10::Error& problem) {
      throw Error::peer("rank {} of {}: the store in which the ranks meet is gone: {}", rank(), size(),
                        first_line(problem.what()));
    }
  }

  /// False when `longest` has passed first.
  bool wait_for(const std::vector<std::string>& keys, Milliseconds longest) {
    try {
      store_->wait(keys, longest);
      return true;
    } catch (const std::exception&) {
      return false;  // a broken connection shows at the caller's next call
    }
  }

  Error not_joined(const std::vector<int>& missing) {
    return Error::timeout("rank {} of {} waited {} s for rank(s) {} to join. See their output above; raise "
                          "--start_timeout if they only start slowly.",
                          rank(), size(), options_.join_timeout.count() / 1000, ranks_text(missing));
  }

  std::vector<int> ranks_without(const char* prefix) {
    std::vector<int> missing;
    for (int peer = 0; peer < size(); ++peer) {
      if (!store_->check({fmt::format("{}/{}", prefix, peer)})) missing.push_back(peer);
    }
    return missing;
  }

  void all_reduce(at::Tensor& values, c10d::ReduceOp op, const char* what) {
    guard(what, [&] {
      std::vector<at::Tensor> tensors{values};
      c10d::AllreduceOptions reduce;
      reduce.reduceOp = op;
      group_->allreduce(tensors, reduce)->wait();
    });
  }

  /// Runs one collective and turns what c10d throws into our errors.
  void guard(const char* what, const std::function<void()>& call) {
    if (!broken_.empty()) throw Error::peer("{}: an earlier collective failed ({})", what, broken_);
    ++sequence_;
    try {
      call();
    } catch (const std::exception& problem) {
      const std::string text = problem.what();
      broken_ = fmt::format("{} (call {})", what, sequence_);
      if (contains(text, "imed out") || contains(text, "imeout")) throw timed_out(what);
      throw Error::peer("{}: a peer of rank {} closed its connection or failed: {}", what, rank(), first_line(text));
    }
  }

  /// Ranks that time out tell the store where they stand; who says nothing within a moment is the one awaited.
  Error timed_out(const char* what) {
    const std::string text = fmt::format("{}: no answer within {} s.", what, options_.timeout.count() / 1000);
    try {
      return Error::timeout("{} {}", text, who_is_stuck_where(what));
    } catch (const std::exception& problem) {
      return Error::timeout("{} Who is missing cannot be told: the store is gone ({}).", text, first_line(problem.what()));
    }
  }

  std::string who_is_stuck_where(const char* what) {
    store_->set(fmt::format("stuck/{}", rank()), bytes_of(fmt::format("call {} '{}'", sequence_, what)));
    const Deadline deadline = Deadline::in(Milliseconds(500));
    std::vector<int> missing = ranks_without("stuck");
    while (!missing.empty() && !deadline.passed()) {
      std::this_thread::sleep_for(Milliseconds(20));
      missing = ranks_without("stuck");
    }
    std::string where;
    for (int peer = 0; peer < size(); ++peer) {
      const std::string key = fmt::format("stuck/{}", peer);
      if (!store_->check({key})) continue;
      const std::vector<uint8_t> value = store_->get(key);
      where += fmt::format("{}rank {} at {}", where.empty() ? "" : ", ", peer, std::string(value.begin(), value.end()));
    }
    return fmt::format("Waiting: {}. Missing: {}.", where,
                       missing.empty() ? "none (the ranks wait in different calls)" : ranks_text(missing));
  }

  ClosedConnectionsAreErrors no_signals_;
  GlooOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  Staging sending_, receiving_;
  uint64_t sequence_ = 0;
  std::string broken_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo(const GlooOptions& options) {
  LS_CHECK(options.rank >= 0 && options.rank < options.size, "rank {} of {}", options.rank, options.size);
  return std::make_unique<GlooCommunicator>(options);
}

}  // namespace lockstep::comm
