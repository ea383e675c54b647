#include "collectives_claims.h"

#include "lockstep/base/error.h"

#include <thread>

namespace lockstep::comm {
namespace {

void on_every_rank(int size, const std::function<void(Communicator&)>& work) {
  auto ranks = make_threads(size, Milliseconds(20'000));
  std::vector<std::jthread> threads;
  for (auto& rank : ranks) threads.emplace_back([&work, &rank] { work(*rank); });
}

TEST(Self, IsAGroupOfOne) {
  const auto comm = make_self();
  claims::all(*comm);
}

TEST(Threads, KeepTheContract) {
  for (const int size : {1, 2, 3, 8}) {
    on_every_rank(size, claims::all);
  }
}

TEST(Threads, NameTheRankThatDoesNotCome) {
  auto ranks = make_threads(3, Milliseconds(50));
  std::jthread other([&] { EXPECT_THROW(ranks[1]->barrier("the meeting"), Error); });
  try {
    ranks[0]->barrier("the meeting");
    FAIL() << "must not pass: rank 2 never came";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank(s) 2 did not come to 'the meeting'"), std::string::npos)
        << error.what();
  }
}

TEST(Threads, NoticeARankThatLeaves) {
  auto ranks = make_threads(2, Milliseconds(60'000));
  std::jthread leaver([&] { ranks[1].reset(); });
  try {
    ranks[0]->barrier("the meeting");
    FAIL() << "must not pass: rank 1 left";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Peer);
    EXPECT_NE(std::string(error.what()).find("rank 1 left"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::comm
