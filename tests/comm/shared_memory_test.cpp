// Real processes that share memory; they meet by gloo. And threads, which meet in memory.
#include "collectives_claims.h"
#include "fork_ranks.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"

#include <csignal>
#include <set>
#include <sys/resource.h>
#include <thread>

namespace lockstep::comm {
namespace {

std::unique_ptr<Communicator> share_memory(const GlooOptions& options) {
  SharedMemoryResult made = make_shared_memory(make_gloo(options));
  EXPECT_EQ(made.why_not, "");
  return std::move(made.comm);
}

std::set<std::string> names_in_dev_shm() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) names.insert(entry.path().filename());
  return names;
}

/// The error that `work` must end with.
Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return Error::internal("no error");
}

bool contains(const Error& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

TEST(SharedMemory, KeepsTheContract) {
  for (const int size : {2, 3, 5}) {
    const TempFolder folder("shm-test");
    const std::vector<int> codes =
        fork_ranks(size, [&](int rank) { claims::all(*share_memory(options_for(folder, rank, size))); });
    EXPECT_EQ(codes, std::vector<int>(static_cast<size_t>(size), 0));
  }
}

/// More than a huge page of some, nothing of one.
void expect_bytes_are_shared(Communicator& comm) {
  const auto size_of = [](int rank) { return rank == 1 ? int64_t{0} : (int64_t{5} << 20) + 3 + rank; };
  const std::vector<at::Tensor> of_rank = comm.share_bytes(size_of(comm.rank()), "test");
  ASSERT_EQ(std::ssize(of_rank), comm.size());
  EXPECT_EQ(of_rank[static_cast<size_t>(comm.rank())].count_nonzero().item<int64_t>(), 0);
  comm.barrier("nobody has written");
  // Each rank writes one byte into everybody's, and its own last one.
  for (int peer = 0; peer < comm.size(); ++peer) {
    const at::Tensor& theirs = of_rank[static_cast<size_t>(peer)];
    ASSERT_EQ(theirs.numel(), size_of(peer));
    if (theirs.numel() == 0) continue;
    if (peer == comm.rank()) theirs[theirs.numel() - 1].fill_(100);
    theirs[comm.rank()].fill_(comm.rank() + 1);
  }
  comm.barrier("all have written");
  for (const at::Tensor& theirs : of_rank) {
    if (theirs.numel() == 0) continue;
    for (int rank = 0; rank < comm.size(); ++rank) EXPECT_EQ(theirs[rank].item<int>(), rank + 1);
    EXPECT_EQ(theirs[theirs.numel() - 1].item<int>(), 100);
  }
  comm.barrier("all have read");
}

TEST(SharedMemory, SharesBytesWhereTheyLie) {
  for (const int size : {2, 3}) {
    const TempFolder folder("shm-test");
    const std::vector<int> codes =
        fork_ranks(size, [&](int rank) { expect_bytes_are_shared(*share_memory(options_for(folder, rank, size))); });
    EXPECT_EQ(codes, std::vector<int>(static_cast<size_t>(size), 0));
  }
}

TEST(SharedMemory, SharesNoBytesWhereAllShallBeCopied) {
  auto ranks = make_threads(2, Milliseconds(30'000));
  std::vector<std::jthread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&rank] {
      const SharedMemoryResult made = make_shared_memory(std::move(rank), true);
      EXPECT_TRUE(made.comm->share_bytes(100, "test").empty());
      made.comm->barrier("still well");
    });
  }
}

TEST(SharedMemory, KeepsTheContractBetweenThreads) {
  for (const int size : {2, 8}) {
    auto ranks = make_threads(size, Milliseconds(30'000));
    std::vector<std::jthread> threads;
    for (auto& rank : ranks) {
      threads.emplace_back([&rank] {
        SharedMemoryResult made = make_shared_memory(std::move(rank));
        ASSERT_EQ(made.why_not, "");
        claims::all(*made.comm);
      });
    }
  }
}

/// In a call of many pieces, so that some are on their way.
TEST(SharedMemory, NoticesAKilledPeerWithinTwoSecondsAndLeavesNothingBehind) {
  const std::set<std::string> before = names_in_dev_shm();
  for (const int victim : {0, 1, 2}) {
    const TempFolder folder("shm-test");
    const std::vector<int> codes = fork_ranks(3, [&](int rank) {
      const auto comm = share_memory(options_for(folder, rank, 3));
      at::Tensor values = at::full({3 * 300'000}, 1, at::kLong);
      at::Tensor shard = at::empty({300'000}, at::kLong);
      comm->reduce_scatter_sum(values, shard, "start");
      if (rank == victim) raise(SIGKILL);
      const auto start = Clock::now();
      const Error error = error_of([&] { comm->reduce_scatter_sum(values, shard, "after the kill"); });
      EXPECT_LT(seconds_since(start), 2.0);
      EXPECT_EQ(error.kind(), ErrorKind::Peer) << error.what();
      EXPECT_TRUE(contains(error, "a peer of rank") && contains(error, "is gone")) << error.what();
      EXPECT_THROW(comm->barrier("later"), Error) << "a broken communicator stays broken";
    });
    std::vector<int> want(3, 0);
    want[static_cast<size_t>(victim)] = 128 + SIGKILL;
    EXPECT_EQ(codes, want);
  }
  EXPECT_EQ(names_in_dev_shm(), before);
}

TEST(SharedMemory, NamesAStoppedPeer) {
  const TempFolder folder("shm-test");
  const auto rank_work = [&](int rank) {
    GlooOptions options = options_for(folder, rank, 3);
    options.timeout = Milliseconds(700);
    const auto comm = share_memory(options);
    comm->barrier("start");
    if (rank == 2) raise(SIGSTOP);
    const Error error = error_of([&] { comm->barrier("the meeting"); });
    if (rank == 2) return;  // whatever it finds when it goes on
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_TRUE(contains(error, "the meeting: no answer within 0.7 s")) << error.what();
    EXPECT_TRUE(contains(error, "Missing: 2.")) << error.what();
    EXPECT_TRUE(contains(error, "rank 0 at call 2 'the meeting', rank 1 at call 2 'the meeting'")) << error.what();
  };
  const std::vector<int> codes = fork_ranks(3, rank_work, [](const std::vector<pid_t>& pids) {
    for (const size_t rank : {0, 1}) {
      siginfo_t ended = {};
      waitid(P_PID, static_cast<id_t>(pids[rank]), &ended, WEXITED | WNOWAIT);
    }
    kill(pids[2], SIGCONT);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

/// As a rank that waits for others must.
TEST(SharedMemory, WaitsAsleep) {
  const TempFolder folder("shm-test");
  const std::vector<int> codes = fork_ranks(2, [&](int rank) {
    const auto comm = share_memory(options_for(folder, rank, 2));
    comm->barrier("start");
    if (rank == 1) std::this_thread::sleep_for(Milliseconds(1'000));  // busy elsewhere: the case under test
    const std::clock_t before = std::clock();
    comm->barrier("the meeting");
    const double busy_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    if (rank == 0) {
      EXPECT_LT(busy_s, 0.1);
    }
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(SharedMemory, ARankThatIsDoneMayGo) {
  const TempFolder folder("shm-test");
  const std::vector<int> codes = fork_ranks(3, [&](int rank) {
    const auto comm = share_memory(options_for(folder, rank, 3));
    at::Tensor value = at::full({1}, 1, at::kLong);
    if (rank == 1) std::this_thread::sleep_for(Milliseconds(400));  // rank 0 looks for the dead meanwhile
    comm->broadcast(value, 2, "of rank 2, which then goes");
    if (rank == 2) return;
    const Error error = error_of([&] { comm->barrier("without rank 2"); });
    EXPECT_EQ(error.kind(), ErrorKind::Peer) << error.what();
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

TEST(SharedMemory, DifferentCallsAreFound) {
  auto ranks = make_threads(2, Milliseconds(5'000));
  std::vector<std::jthread> threads;
  for (auto& bootstrap : ranks) {
    threads.emplace_back([&bootstrap] {
      const std::unique_ptr<Communicator> comm = make_shared_memory(std::move(bootstrap)).comm;
      at::Tensor values = at::full({comm->rank() + 2}, 1, at::kLong);
      const Error error = error_of([&] { comm->all_reduce_sum(values, "sizes differ"); });
      EXPECT_TRUE(contains(error, "ranks make different calls") || error.kind() == ErrorKind::Peer) << error.what();
    });
  }
}

/// One rank cannot do its part: all go on by what they met by, and know why.
TEST(SharedMemory, WhereItCannotBeHadAllGoOnWithout) {
  const TempFolder folder("shm-test");
  const std::vector<int> codes = fork_ranks(2, [&](int rank) {
    std::unique_ptr<Communicator> gloo = make_gloo(options_for(folder, rank, 2));
    if (rank == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit little{1 << 16, 1 << 16};
      setrlimit(RLIMIT_FSIZE, &little);
    }
    const Communicator* before = gloo.get();
    const SharedMemoryResult made = make_shared_memory(std::move(gloo));
    EXPECT_EQ(made.comm.get(), before);
    EXPECT_EQ(made.why_not, "rank 0: allocation of memory that processes share: File too large");
    claims::texts_arrive_in_rank_order(*made.comm);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(Carrier, IsChosenByName) {
  EXPECT_EQ(carrier_from_name("auto"), Carrier::Auto);
  EXPECT_EQ(carrier_from_name("shm"), Carrier::SharedMemory);
  EXPECT_EQ(carrier_from_name("gloo"), Carrier::Gloo);
  EXPECT_EQ(carrier_from_name("gloo-raw"), Carrier::GlooRaw);
  EXPECT_EQ(carrier_from_name("gloo-packed"), Carrier::GlooPacked);
  const Error error = error_of([] { carrier_from_name("tcp"); });
  EXPECT_EQ(error.kind(), ErrorKind::Usage);
  EXPECT_TRUE(contains(error, "LOCKSTEP_COMM = tcp")) << error.what();
}

TEST(Carrier, MustBeTheSameForAll) {
  const TempFolder folder("shm-test");
  const std::vector<int> codes = fork_ranks(2, [&](int rank) {
    const Error error = error_of(
        [&] { make_processes(options_for(folder, rank, 2), rank == 0 ? Carrier::Gloo : Carrier::SharedMemory); });
    EXPECT_EQ(error.kind(), ErrorKind::Usage) << error.what();
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace lockstep::comm
