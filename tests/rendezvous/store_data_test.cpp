#include "lockstep/rendezvous/store_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::rendezvous {
namespace {

using WaitState = StoreData::Wait;
using Ids = std::vector<StoreData::ClientId>;

void done(const Refusal& refusal) { EXPECT_FALSE(refusal) << *refusal; }

struct Data : StoreData {
  explicit Data(const DataLimits& limits = {}) : StoreData(limits) {}

  int64_t sum(const std::string& key, int64_t delta) {
    int64_t result = 0;
    done(add(key, delta, result));
    return result;
  }
  std::string swap(const std::string& key, const std::string& expected, const std::string& desired) {
    std::string_view now;
    done(compare_set(key, expected, desired, now));
    return std::string(now);
  }
  bool waits(ClientId client, std::vector<std::string> keys) {
    WaitState state = WaitState::Over;
    done(StoreData::wait(client, std::move(keys), state));
    return state == WaitState::Pending;
  }
  bool arrives_and_waits(ClientId client, const std::string& key, int64_t world_size) {
    WaitState state = WaitState::Over;
    done(barrier(client, key, world_size, state));
    return state == WaitState::Pending;
  }
};

TEST(StoreData, SetReplacesAndEraseForgets) {
  Data data;
  EXPECT_EQ(data.get("k"), "");
  EXPECT_FALSE(data.exists("k"));
  done(data.set("k", "one"));
  done(data.set("k", std::string("t\0o", 3)));
  EXPECT_EQ(data.get("k"), std::string_view("t\0o", 3));
  EXPECT_EQ(data.num_keys(), 1U);
  done(data.set("", ""));
  EXPECT_TRUE(data.exists("")) << "an empty key with an empty value is a key";
  EXPECT_TRUE(data.erase("k"));
  EXPECT_FALSE(data.erase("k"));
  EXPECT_EQ(data.num_keys(), 1U);
}

TEST(StoreData, AddCountsInDecimalText) {
  Data data;
  EXPECT_EQ(data.sum("n", 5), 5);
  EXPECT_EQ(data.sum("n", -7), -2);
  EXPECT_EQ(data.get("n"), "-2");
  done(data.set("n", " +41 of many"));
  EXPECT_EQ(data.sum("n", 1), 42);
  done(data.set("n", "9223372036854775807"));
  EXPECT_EQ(data.sum("n", 1), INT64_MIN);
  EXPECT_EQ(data.get("n"), "-9223372036854775808");
}

TEST(StoreData, AddRefusesWhatIsNoNumberAndLeavesIt) {
  Data data;
  for (const char* text : {"", "x1", "-", "+", "+-1", " ", "9223372036854775808"}) {
    done(data.set("n", text));
    int64_t sum = 0;
    const Refusal refusal = data.add("n", 1, sum);
    ASSERT_TRUE(refusal) << text;
    EXPECT_NE(refusal->find("key 'n'"), std::string::npos) << *refusal;
    EXPECT_EQ(data.get("n"), text);
  }
}

TEST(StoreData, CompareSetFollowsLibtorchsRules) {
  Data data;
  EXPECT_EQ(data.swap("k", "wrong", "new"), "wrong") << "absent, expected: the expectation comes back";
  EXPECT_FALSE(data.exists("k"));
  EXPECT_EQ(data.swap("k", "", "first"), "first") << "absent, as expected: written";
  EXPECT_EQ(data.swap("k", "", "second"), "first") << "present: an empty expectation is one like others";
  EXPECT_EQ(data.swap("k", "first", "second"), "second");
  EXPECT_EQ(data.swap("k", "first", "third"), "second");
  EXPECT_EQ(data.get("k"), "second");
}

TEST(StoreData, AppendMakesOrLengthensUpToItsLimit) {
  Data data({.total_bytes = 10'000, .appended_bytes = 10});
  done(data.append("k", "12345"));
  done(data.append("k", "67890"));
  EXPECT_EQ(data.get("k"), "1234567890");
  const Refusal refusal = data.append("k", "x");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(*refusal, "key 'k' would hold 11 bytes; at most 10 can be appended to one value");
  EXPECT_EQ(data.get("k"), "1234567890");
}

TEST(StoreData, QueuesAreFirstInFirstOutAndNoKeysOfTheList) {
  Data data;
  EXPECT_FALSE(data.queue_pop("q"));
  done(data.queue_push("q", "1"));
  done(data.queue_push("q", "2"));
  EXPECT_EQ(data.queue_length("q"), 2U);
  EXPECT_TRUE(data.exists("q"));
  EXPECT_EQ(data.num_keys(), 0U);
  EXPECT_TRUE(data.list_keys().empty());
  EXPECT_EQ(data.get("q"), "");
  EXPECT_FALSE(data.erase("q"));
  EXPECT_EQ(data.queue_pop("q"), "1");
  EXPECT_EQ(data.queue_pop("q"), "2");
  EXPECT_FALSE(data.queue_pop("q"));
  EXPECT_FALSE(data.exists("q"));
  EXPECT_EQ(data.bytes(), 0U);
}

TEST(StoreData, ListKeysNamesEachOnce) {
  Data data;
  done(data.set("b", ""));
  done(data.set("a", "1"));
  done(data.set("b", "2"));
  std::vector<std::string_view> keys = data.list_keys();
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<std::string_view>{"a", "b"}));
}

TEST(StoreWaits, AreOverAtOnceWhenAllKeysExist) {
  Data data;
  EXPECT_FALSE(data.waits(1, {}));
  done(data.set("a", ""));
  done(data.queue_push("q", ""));
  EXPECT_FALSE(data.waits(1, {"a", "q", "a"}));
  EXPECT_EQ(data.take_woken(), Ids{});
}

TEST(StoreWaits, EndWithTheLastKeyInWhateverOrderTheyCome) {
  const std::vector<std::string> keys{"a", "b", "c", "a"};
  std::vector<std::string> order{"a", "b", "c"};
  do {
    Data data;
    ASSERT_TRUE(data.waits(1, keys));
    done(data.set(order[0], ""));
    EXPECT_EQ(data.sum(order[1], 1), 1);
    EXPECT_EQ(data.take_woken(), Ids{}) << order[0] << order[1];
    done(data.append(order[2], "x"));
    EXPECT_EQ(data.take_woken(), Ids{1}) << order[0] << order[1] << order[2];
    EXPECT_EQ(data.num_waiting(), 0U);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(StoreWaits, EveryWayToMakeAKeyWakes) {
  Data data;
  const auto wakes = [&](const std::string& key, auto make) {
    EXPECT_TRUE(data.waits(7, {key}));
    make(key);
    EXPECT_EQ(data.take_woken(), Ids{7}) << key;
  };
  wakes("set", [&](const std::string& key) { done(data.set(key, "")); });
  wakes("add", [&](const std::string& key) { data.sum(key, 1); });
  wakes("append", [&](const std::string& key) { done(data.append(key, "")); });
  wakes("compare_set", [&](const std::string& key) { data.swap(key, "", ""); });
  wakes("queue", [&](const std::string& key) { done(data.queue_push(key, "")); });
  wakes("barrier", [&](const std::string& key) { data.arrives_and_waits(8, key, 2); });
}

TEST(StoreWaits, AreNotEndedByAKeyThatIsNotMade) {
  Data data;
  ASSERT_TRUE(data.waits(1, {"k"}));
  data.swap("k", "expected", "desired");
  EXPECT_EQ(data.take_woken(), Ids{});
  EXPECT_TRUE(data.is_waiting(1));
}

TEST(StoreWaits, EndOnlyWhenAllKeysExistAtOnce) {
  Data data;
  ASSERT_TRUE(data.waits(1, {"a", "b"}));
  done(data.set("a", ""));
  EXPECT_TRUE(data.erase("a"));
  done(data.set("b", ""));
  EXPECT_EQ(data.take_woken(), Ids{}) << "a has gone again";
  done(data.set("a", ""));
  EXPECT_EQ(data.take_woken(), Ids{1});

  ASSERT_TRUE(data.waits(2, {"q", "c"}));
  done(data.queue_push("q", "1"));
  EXPECT_EQ(data.queue_pop("q"), "1");
  done(data.set("c", ""));
  EXPECT_EQ(data.take_woken(), Ids{}) << "the queue is empty again";
  done(data.queue_push("q", "2"));
  EXPECT_EQ(data.take_woken(), Ids{2});
}

TEST(StoreWaits, OfManyClientsEndTogetherInTheOrderTheyBegan) {
  Data data;
  Ids all;
  for (StoreData::ClientId client = 1; client <= 1000; ++client) {
    ASSERT_TRUE(data.waits(client, {"k"}));
    all.push_back(client);
  }
  done(data.set("k", ""));
  EXPECT_EQ(data.take_woken(), all);
}

TEST(StoreWaits, OnAQueueEndOneByOne) {
  Data data;
  ASSERT_TRUE(data.waits(1, {"q", "other"}));
  ASSERT_TRUE(data.waits(2, {"q"}));
  ASSERT_TRUE(data.waits(3, {"q"}));
  done(data.queue_push("q", "x"));
  EXPECT_EQ(data.take_woken(), Ids{2}) << "1 still misses another key";
  done(data.queue_push("q", "y"));
  EXPECT_EQ(data.take_woken(), Ids{3});
  done(data.set("other", ""));
  EXPECT_EQ(data.take_woken(), Ids{1});
}

TEST(StoreWaits, CanBeCancelledAndBegunAgain) {
  Data data;
  ASSERT_TRUE(data.waits(1, {"a", "b"}));
  ASSERT_TRUE(data.waits(2, {"b"}));
  data.cancel(1);
  data.cancel(1);
  data.cancel(99);
  done(data.set("a", ""));
  EXPECT_EQ(data.take_woken(), Ids{});
  ASSERT_TRUE(data.waits(1, {"b"}));
  done(data.set("b", ""));
  EXPECT_EQ(data.take_woken(), (Ids{2, 1}));
}

TEST(StoreWaits, ASecondOneOfTheSameClientIsRefused) {
  Data data;
  ASSERT_TRUE(data.waits(1, {"a"}));
  WaitState state = WaitState::Over;
  EXPECT_EQ(data.wait(1, {"b"}, state), "the client waits already; one wait at a time");
  EXPECT_EQ(data.barrier(1, "b", 2, state), "the client waits already; one wait at a time");
  EXPECT_FALSE(data.exists("b"));
}

TEST(StoreBarrier, OpensWithTheLastArrivalAndStaysOpen) {
  Data data;
  EXPECT_TRUE(data.arrives_and_waits(1, "b", 3));
  EXPECT_EQ(data.get("b"), "1");
  EXPECT_TRUE(data.arrives_and_waits(2, "b", 3));
  EXPECT_EQ(data.take_woken(), Ids{});
  EXPECT_FALSE(data.arrives_and_waits(3, "b", 3));
  EXPECT_EQ(data.take_woken(), (Ids{1, 2}));
  EXPECT_EQ(data.get("b"), "3");
  EXPECT_FALSE(data.arrives_and_waits(1, "b", 3)) << "a key serves once";
  for (const int64_t world_size : {1, 0, -3}) {
    EXPECT_FALSE(data.arrives_and_waits(1, "of " + std::to_string(world_size), world_size));
  }
}

TEST(StoreBarrier, AnArrivalThatWasCancelledDoesNotCount) {
  Data data;
  EXPECT_TRUE(data.arrives_and_waits(1, "b", 2));
  data.cancel(1);
  EXPECT_TRUE(data.arrives_and_waits(1, "b", 2)) << "the second try of the same client is no second client";
  EXPECT_FALSE(data.arrives_and_waits(2, "b", 2));
  EXPECT_EQ(data.take_woken(), Ids{1});
  data.cancel(1);
  EXPECT_EQ(data.get("b"), "2") << "a barrier that is over has nothing to take back";
}

TEST(StoreBarrier, SharesItsKeyWithOrdinaryWaits) {
  Data data;
  ASSERT_TRUE(data.waits(1, {"b"}));
  EXPECT_TRUE(data.arrives_and_waits(2, "b", 2));
  EXPECT_EQ(data.take_woken(), Ids{1});
  done(data.set("b", "1"));
  EXPECT_EQ(data.take_woken(), Ids{}) << "a value is no arrival";
  EXPECT_FALSE(data.arrives_and_waits(3, "b", 2));
  EXPECT_EQ(data.take_woken(), Ids{2});
}

TEST(StoreBarrier, RefusesAKeyThatHoldsSomethingElse) {
  Data data;
  done(data.set("b", "text"));
  WaitState state = WaitState::Over;
  EXPECT_TRUE(data.barrier(1, "b", 2, state));
  EXPECT_FALSE(data.is_waiting(1));
}

TEST(StoreMemory, IsCountedAndComesBack) {
  Data data;
  done(data.set("key", "value"));
  EXPECT_EQ(data.bytes(), kEntryOverhead + 8);
  done(data.set("key", "longer value"));
  EXPECT_EQ(data.bytes(), kEntryOverhead + 15);
  done(data.append("key", "!"));
  EXPECT_EQ(data.bytes(), kEntryOverhead + 16);
  done(data.queue_push("q", "12"));
  ASSERT_TRUE(data.waits(1, {"missing"}));
  EXPECT_TRUE(data.arrives_and_waits(2, "b", 10));
  data.cancel(1);
  data.cancel(2);
  EXPECT_TRUE(data.erase("b"));
  EXPECT_EQ(data.queue_pop("q"), "12");
  EXPECT_TRUE(data.erase("key"));
  EXPECT_EQ(data.bytes(), 0U);
}

TEST(StoreMemory, IsRefusedBeyondTheLimitAndNothingChanges) {
  Data data({.total_bytes = 1000});
  done(data.set("k", std::string(500, 'x')));
  const size_t before = data.bytes();
  const auto refused = [&](const Refusal& refusal) {
    ASSERT_TRUE(refusal);
    EXPECT_NE(refusal->find("the store is full"), std::string::npos) << *refusal;
    EXPECT_NE(refusal->find("1000"), std::string::npos) << *refusal;
    EXPECT_EQ(data.bytes(), before);
  };
  std::string_view now;
  WaitState state = WaitState::Over;
  refused(data.set("k", std::string(900, 'x')));
  refused(data.set("other", std::string(400, 'x')));
  refused(data.append("k", std::string(400, 'x')));
  refused(data.queue_push("q", std::string(400, 'x')));
  refused(data.compare_set("other", "", std::string(400, 'x'), now));
  refused(data.wait(1, std::vector<std::string>(4, "missing"), state));
  refused(data.barrier(1, std::string(200, 'b'), 2, state));
  EXPECT_EQ(data.get("k").size(), 500U);
  EXPECT_EQ(data.num_keys(), 1U);
  EXPECT_FALSE(data.is_waiting(1));
  done(data.set("k", "shorter"));
}

TEST(StoreMemory, ClearForgetsEverythingAndWakesNobody) {
  Data data;
  done(data.set("k", "v"));
  done(data.queue_push("q", "v"));
  ASSERT_TRUE(data.waits(1, {"missing"}));
  ASSERT_TRUE(data.waits(2, {"gone"}));
  done(data.set("gone", ""));
  data.clear();
  EXPECT_EQ(data.take_woken(), Ids{});
  EXPECT_EQ(data.bytes(), 0U);
  EXPECT_EQ(data.num_waiting(), 0U);
  EXPECT_FALSE(data.exists("k"));
  EXPECT_FALSE(data.exists("q"));
  ASSERT_TRUE(data.waits(1, {"missing"}));
  done(data.set("missing", ""));
  EXPECT_EQ(data.take_woken(), Ids{1});
}

}  // namespace
}  // namespace lockstep::rendezvous
