// c10d::TCPStore as a client, with the flag useLibUV on and off (which changes only what the client believes of its
// server).
#include "rendezvous/store_client.h"
#include "store_clients/server_thread.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::rendezvous {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;
using StorePtr = c10::intrusive_ptr<c10d::TCPStore>;

constexpr int kClients = 32;  ///< of ManyWorkAtOnce
constexpr int kSteps = 50;

Bytes bytes(std::string_view text) { return {text.begin(), text.end()}; }
std::string text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

class TcpStoreClient : public testing::TestWithParam<bool> {
 protected:
  StorePtr connect(std::optional<size_t> num_workers = {}) {
    c10d::TCPStoreOptions options;
    options.port = server_.port();
    options.isServer = false;
    options.numWorkers = num_workers;
    options.timeout = milliseconds(10'000);
    options.useLibUV = GetParam();
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  ServerThread server_;
};

TEST_P(TcpStoreClient, SetsGetsAddsAndDeletes) {
  const StorePtr store = connect();
  const StorePtr other = connect();
  store->set("key", bytes("value"));
  EXPECT_EQ(text(other->get("key")), "value");
  EXPECT_EQ(store->add("count", 5), 5);
  EXPECT_EQ(other->add("count", -2), 3);
  EXPECT_EQ(text(store->get("count")), "3");
  EXPECT_EQ(store->getNumKeys(), 2);
  EXPECT_TRUE(store->check({"key", "count"}));
  EXPECT_FALSE(store->check({"key", "absent"}));
  EXPECT_TRUE(store->deleteKey("key"));
  EXPECT_FALSE(other->deleteKey("key"));
  EXPECT_EQ(other->getNumKeys(), 1);
  EXPECT_TRUE(server_.log().empty());
}

TEST_P(TcpStoreClient, ComparesAndSets) {
  const StorePtr store = connect();
  EXPECT_EQ(text(store->compareSet("key", bytes("expected"), bytes("new"))), "expected");
  EXPECT_FALSE(store->check({"key"}));
  EXPECT_EQ(text(store->compareSet("key", bytes(""), bytes("first"))), "first");
  EXPECT_EQ(text(store->compareSet("key", bytes("wrong"), bytes("second"))), "first");
  EXPECT_EQ(text(store->compareSet("key", bytes("first"), bytes("second"))), "second");
}

TEST_P(TcpStoreClient, UsesTheExtendedCommands) {
  const StorePtr store = connect();
  EXPECT_TRUE(store->hasExtendedApi());
  store->append("log", bytes("one "));
  store->append("log", bytes("two"));
  store->multiSet({"a", "b"}, {bytes("1"), bytes("")});
  const std::vector<Bytes> values = store->multiGet({"log", "b", "a"});
  EXPECT_EQ(values, (std::vector<Bytes>{bytes("one two"), bytes(""), bytes("1")}));
}

TEST_P(TcpStoreClient, ListsKeysWithoutTheirPrefix) {
  const StorePtr store = connect();
  store->set("a", bytes(""));
  store->set("deep/b", bytes(""));
  std::vector<std::string> keys = store->listKeys();
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<std::string>{"a", "deep/b"}));
}

TEST_P(TcpStoreClient, WaitsUntilAnotherSets) {
  const StorePtr store = connect();
  const StorePtr other = connect();
  auto waiting = std::async(std::launch::async, [&] {
    store->wait({"a", "b"}, milliseconds(10'000));
    return text(store->get("b"));
  });
  auto getting = std::async(std::launch::async, [&] { return text(connect()->get("b")); });
  while (server_.statistics().waiting < 2) std::this_thread::yield();
  other->set("a", bytes("1"));
  other->set("b", bytes("2"));
  EXPECT_EQ(waiting.get(), "2");
  EXPECT_EQ(getting.get(), "2");
}

TEST_P(TcpStoreClient, GoesOnAfterAWaitThatTimedOut) {
  const StorePtr store = connect();
  const std::string error = error_of([&] { store->wait({"absent"}, milliseconds(100)); });
  EXPECT_NE(error.find("wait timeout after 100ms"), std::string::npos) << error;
  EXPECT_NE(error.find("/absent"), std::string::npos) << error;
  EXPECT_EQ(server_.statistics().waiting, 0U);
  store->set("absent", bytes("there"));
  store->wait({"absent"}, milliseconds(10'000));
  EXPECT_EQ(text(store->get("absent")), "there");
}

// Keys that come at the time-out of a wait: whichever is first, the connection keeps its place in the conversation.
TEST_P(TcpStoreClient, KeepsItsPlaceWhenAKeyAndATimeOutCross) {
  const StorePtr store = connect();
  const StorePtr other = connect();
  int timed_out = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string key = fmt::format("crossing/{}", i);
    std::thread setter([&] {
      std::this_thread::sleep_for(milliseconds(3 + i % 5));
      other->set(key, bytes("v"));
    });
    const std::string error = error_of([&] { store->wait({key}, milliseconds(5)); });
    setter.join();
    if (error != "no error") ++timed_out;
    ASSERT_EQ(store->add("place", 1), i + 1) << error;
  }
  EXPECT_GT(timed_out, 0);
}

TEST_P(TcpStoreClient, CountsTheWorkersThatHaveStarted) {
  std::vector<std::future<StorePtr>> starting;
  for (int i = 0; i < 3; ++i) starting.push_back(std::async(std::launch::async, [this] { return connect(3); }));
  std::vector<StorePtr> stores;
  for (auto& one : starting) stores.push_back(one.get());
  net::EventLoop loop;
  RawClient raw(loop, server_.address());
  raw.greet();
  EXPECT_EQ(raw.ask(bytes_of(StoreOp::Get, {"init/"}), 9), blob("3"));
}

TEST_P(TcpStoreClient, HasPrefixesAndClones) {
  const StorePtr store = connect();
  const auto prefix = c10::make_intrusive<c10d::PrefixStore>("round/1", store);
  prefix->set("key", bytes("of one"));
  EXPECT_EQ(text(store->get("round/1/key")), "of one");
  EXPECT_EQ(prefix->add("n", 2), 2);
  const auto clone = store->clone();
  EXPECT_EQ(text(clone->get("round/1/key")), "of one");
  EXPECT_EQ(server_.statistics().connections, 2U);
}

TEST_P(TcpStoreClient, HandlesTheLargestValueAndSurvivesALargerOne) {
  const StorePtr store = connect();
  const Bytes largest(8 << 20, 'x');
  store->set("largest", largest);
  EXPECT_TRUE(store->get("largest") == largest);
  const StorePtr greedy = connect();
  const std::string error = error_of([&] {
    greedy->set("larger", Bytes((8 << 20) + 1, 'x'));
    greedy->add("n", 1);
  });
  EXPECT_NE(error, "no error");
  ASSERT_EQ(server_.log().size(), 1U);
  EXPECT_NE(server_.log()[0].find("SET: the value has 8388609 bytes"), std::string::npos) << server_.log()[0];
  EXPECT_EQ(store->getNumKeys(), 1);
}

TEST_P(TcpStoreClient, QueuesWhereItBelievesInThem) {
  const StorePtr store = connect();
  if (!GetParam()) {
    const std::string error = error_of([&] { store->queuePush("q", bytes("1")); });
    EXPECT_NE(error.find("queues not implemented on legacy TCPStore backend"), std::string::npos) << error;
    return;
  }
  store->queuePush("q", bytes("1"));
  store->queuePush("q", bytes("2"));
  store->queuePush("q", bytes("3"));
  EXPECT_EQ(store->queueLen("q"), 3);
  EXPECT_EQ(text(store->queuePop("q", true)), "1");
  EXPECT_EQ(text(store->queuePop("q", false)), "2");
  EXPECT_EQ(text(store->queuePop("q", false)), "3");
  EXPECT_NE(error_of([&] { store->queuePop("q", false); }), "no error");
  EXPECT_EQ(store->queueLen("q"), 0);

  std::vector<std::future<std::string>> popping;
  for (int i = 0; i < 3; ++i) {
    popping.push_back(std::async(std::launch::async, [this] { return text(connect()->queuePop("jobs", true)); }));
  }
  while (server_.statistics().waiting < 3) std::this_thread::yield();
  for (const char* job : {"a", "b", "c"}) store->queuePush("jobs", bytes(job));
  std::vector<std::string> jobs;
  for (auto& one : popping) jobs.push_back(one.get());
  std::sort(jobs.begin(), jobs.end());
  EXPECT_EQ(jobs, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_P(TcpStoreClient, MeetsAtBarriers) {
  std::vector<std::future<int64_t>> arriving;
  for (int i = 0; i < 4; ++i) {
    arriving.push_back(std::async(std::launch::async, [this] {
      const StorePtr store = connect();
      store->add("before", 1);
      store->barrier("meet", 4, milliseconds(10'000));
      return store->add("before", 0);
    }));
  }
  for (auto& one : arriving) EXPECT_EQ(one.get(), 4);
}

TEST_P(TcpStoreClient, GoesOnAfterABarrierThatTimedOut) {
  const StorePtr store = connect();
  const std::string error = error_of([&] { store->barrier("lonely", 2, milliseconds(100)); });
  EXPECT_NE(error.find("barrier timeout after 100ms"), std::string::npos) << error;
  EXPECT_EQ(store->add("n", 1), 1);
  auto second = std::async(std::launch::async, [this] { connect()->barrier("lonely", 2, milliseconds(10'000)); });
  while (server_.statistics().waiting < 1) std::this_thread::yield();
  store->barrier("lonely", 2, milliseconds(10'000));
  second.get();
}

TEST_P(TcpStoreClient, ManyWorkAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([this, i] {
      const StorePtr store = connect(kClients);
      for (int step = 0; step < kSteps; ++step) {
        store->set(fmt::format("{}/{}", step, i), bytes(fmt::format("{}", i)));
        store->add("total", 1);
        const int neighbour = (i + 1) % kClients;
        EXPECT_EQ(text(store->get(fmt::format("{}/{}", step, neighbour))), fmt::format("{}", neighbour));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StorePtr store = connect();
  EXPECT_EQ(store->add("total", 0), kClients * kSteps);
  EXPECT_EQ(store->getNumKeys(), kClients * kSteps + 2) << "and the total, and the start-up counter";
}

INSTANTIATE_TEST_SUITE_P(LibUv, TcpStoreClient, testing::Values(true, false),
                         [](const auto& flag) { return flag.param ? "On" : "Off"; });

}  // namespace
}  // namespace lockstep::rendezvous
