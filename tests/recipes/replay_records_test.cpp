// What a run logged, read back, and a replay compared with it.
#include "lockstep/recipes/replay_records.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::recipes {
namespace {

constexpr const char* kTwoUpdates =
    R"({"step":1,"loss":0.5,"grad_norm":2.25,"learning_rate":0.001,"skipped":false,"block_hashes":["00000000000000aa","00000000000000bb"]}
{"step":1,"epoch":1.0,"eval_loss":0.25}
{"step":2,"loss":null,"grad_norm":null,"learning_rate":0.0005,"skipped":true,"block_hashes":["00000000000000aa","00000000000000bb"]}
)";

template <class Action>
std::string message_of(ErrorKind kind, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

UpdateRecord record(int64_t update, std::vector<std::string> hashes) {
  return {update, 0.5, 2, 1e-3, false, std::move(hashes)};
}

TEST(UpdateRecords, HoldWhatWasLoggedOfUpdatesAlone) {
  const UpdateRecords records = read_update_records(kTwoUpdates, "m");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records.at(1).loss, 0.5);
  EXPECT_EQ(records.at(1).grad_norm, 2.25);
  EXPECT_EQ(records.at(1).learning_rate, 0.001);
  EXPECT_EQ(records.at(1).block_hashes, (std::vector<std::string>{"00000000000000aa", "00000000000000bb"}));
  EXPECT_TRUE(std::isnan(records.at(2).loss));
  EXPECT_TRUE(records.at(2).skipped);
}

TEST(UpdateRecords, ALineThatIsBeingWrittenIsPassedOver) {
  const std::string text = std::string(kTwoUpdates) + R"({"step":3,"loss":0.)";
  EXPECT_EQ(read_update_records(text, "m").size(), 2u);
  EXPECT_EQ(read_update_records("", "m").size(), 0u);
}

TEST(UpdateRecords, AnEditedLineIsNamed) {
  for (const char* line : {"{\"step\":3,\"loss\":0.\n", "[]\n", "{\"loss\":1}\n", "\n", "{\"step\":3,\"loss\":1,\"block_hashes\":7}\n"}) {
    const std::string text = message_of(ErrorKind::Data, [&] { read_update_records(std::string(kTwoUpdates) + line, "out/m.jsonl"); });
    EXPECT_NE(text.find("out/m.jsonl:4: "), std::string::npos) << line << text;
  }
}

TEST(UpdateRecords, TheLaterOfTwoLinesHolds) {
  const std::string text = std::string(kTwoUpdates) + R"({"step":1,"loss":0.75,"block_hashes":[]})" + "\n";
  EXPECT_EQ(read_update_records(text, "m").at(1).loss, 0.75);
}

TEST(UpdateToReplay, IsTheWishOrTheLastWithHashes) {
  UpdateRecords records = {{4, record(4, {"a"})}, {5, record(5, {"a"})}, {6, record(6, {})}};
  EXPECT_EQ(update_to_replay(records, {}, "m"), 5);
  EXPECT_EQ(update_to_replay(records, 4, "m"), 4);
  EXPECT_NE(message_of(ErrorKind::Usage, [&] { update_to_replay(records, 6, "m"); }).find("without hashes of the blocks. Updates with hashes of the blocks: 4 to 5"),
            std::string::npos);
  EXPECT_NE(message_of(ErrorKind::Usage, [&] { update_to_replay(records, 7, "m"); }).find("no such update"), std::string::npos);
  records = {{6, record(6, {})}};
  EXPECT_NE(message_of(ErrorKind::Data, [&] { update_to_replay(records, {}, "m"); }).find("none of its updates"), std::string::npos);
  EXPECT_NE(message_of(ErrorKind::Data, [&] { update_to_replay({}, 1, "m"); }).find("has no update"), std::string::npos);
}

TEST(CompareUpdate, NamesEachThingThatDiffers) {
  const UpdateRecord logged = record(3, {"a", "b", "c"});
  EXPECT_FALSE(compare_update(logged, logged).any());

  const UpdateDifference blocks = compare_update(logged, record(3, {"a", "x", "y"}));
  EXPECT_EQ(blocks.blocks, (std::vector<size_t>{1, 2}));
  EXPECT_FALSE(blocks.loss || blocks.grad_norm || blocks.learning_rate || blocks.skipped || blocks.num_blocks);

  EXPECT_TRUE(compare_update(logged, record(3, {"a", "b"})).num_blocks);
  UpdateRecord other = logged;
  other.loss = std::nextafter(other.loss, 1.0);
  EXPECT_TRUE(compare_update(logged, other).loss);
  other = logged;
  other.grad_norm = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(compare_update(logged, other).grad_norm);
  EXPECT_FALSE(compare_update(other, other).any()) << "what was not finite is not finite again";
  other = logged;
  other.skipped = true;
  EXPECT_TRUE(compare_update(logged, other).skipped);
  other = logged;
  other.learning_rate = 2;
  EXPECT_TRUE(compare_update(logged, other).learning_rate);
  EXPECT_FALSE(compare_update(record(3, {}), other).any()) << "nothing was logged to compare with";
}

TEST(ChooseStart, TakesTheNewestBefore) {
  const std::vector<ReplayStart> checkpoints = {{5, "five"}, {10, "ten"}, {15, "fifteen"}};
  const auto chosen = [&](int64_t update) {
    const auto start = choose_start(checkpoints, update);
    return start ? start->folder : "beginning";
  };
  EXPECT_EQ(chosen(1), "beginning");
  EXPECT_EQ(chosen(5), "beginning");
  EXPECT_EQ(chosen(6), "five");
  EXPECT_EQ(chosen(15), "ten");
  EXPECT_EQ(chosen(99), "fifteen");
  EXPECT_FALSE(choose_start({}, 7).has_value());
}

}  // namespace
}  // namespace lockstep::recipes
