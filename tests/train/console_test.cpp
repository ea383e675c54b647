#include "lockstep/train/console.h"

#include "lockstep/train/memory.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::train {
namespace {

UpdateMetrics some_metrics() {
  UpdateMetrics metrics;
  metrics.update = 37;
  metrics.loss = 1.25;
  metrics.grad_norm = 0.5;
  metrics.learning_rate = 2e-5;
  metrics.entropy = 1.5;
  metrics.mean_token_accuracy = 0.75;
  metrics.num_tokens = 123456;
  metrics.update_tokens = 2000;
  metrics.step_ms = 500;
  metrics.epoch = 0.5;
  return metrics;
}

TEST(BarText, NeverFillsTheLine) {
  for (int columns = 40; columns <= 200; ++columns) {
    for (const int64_t done : {0, 1, 999, 1000}) {
      const std::string bar = bar_text(done, 1000, 3'000'000, some_metrics(), columns);
      EXPECT_LE(bar.size(), static_cast<size_t>(columns - 1)) << bar;
    }
  }
}

TEST(BarText, LeavesWholePartsOutWhenThereIsNoRoom) {
  EXPECT_EQ(bar_text(5, 10, 60, some_metrics(), 12), " 50% 5/10");
  EXPECT_EQ(bar_text(5, 10, 60, some_metrics(), 35), " 50% |####    | 5/10 [01:00<01:00]");
  const std::string wide = bar_text(5, 10, 60, some_metrics(), 120);
  EXPECT_EQ(wide, " 50% |####################                    | 5/10 [01:00<01:00] loss 1.2500 4000 tokens/s");
}

TEST(BarText, KnowsNothingBeforeTheFirstUpdate) {
  EXPECT_EQ(bar_text(0, 10, 0, {}, 40), "  0% |                 | 0/10 [00:00<?]");
}

TEST(ClockText, HasHoursWhenThereAreSome) {
  EXPECT_EQ(clock_text(0), "00:00");
  EXPECT_EQ(clock_text(59.6), "01:00");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(360'000), "100:00:00");
  EXPECT_EQ(clock_text(-5), "00:00");
}

TEST(LogLine, NamesEveryNumber) {
  UpdateMetrics metrics = some_metrics();
  const std::string line = log_line(metrics, means_of({metrics}), 1000);
  EXPECT_EQ(line, "step   37/1000  loss 1.2500  grad_norm 0.5  lr 2.000e-05  entropy 1.5000  accuracy 0.7500  "
                  "tokens 123456  epoch 0.5000  4000 tokens/s");
  metrics.skipped = true;
  EXPECT_TRUE(log_line(metrics, {}, 1000).ends_with("  SKIPPED (not finite)"));
}

TEST(LogLine, LeavesOutWhatALossDoesNotHave) {
  UpdateMetrics metrics = some_metrics();
  metrics.has_entropy = metrics.has_accuracy = false;
  EXPECT_EQ(log_line(metrics, means_of({metrics}), 1000),
            "step   37/1000  loss 1.2500  grad_norm 0.5  lr 2.000e-05  tokens 123456  epoch 0.5000  4000 tokens/s");
}

TEST(WindowMeans, SkippedUpdatesDoNotSpoilTheLoss) {
  UpdateMetrics good = some_metrics(), skipped = some_metrics();
  skipped.skipped = true;
  skipped.loss = std::nan("");
  const WindowMeans means = means_of({good, skipped});
  EXPECT_EQ(means.loss, 1.25);
  EXPECT_EQ(means.tokens_per_second, 4000);
  EXPECT_TRUE(std::isnan(means_of({skipped}).loss));
  skipped.loss = skipped.grad_norm = -std::nan("");
  const std::string line = log_line(skipped, means_of({skipped}), 1000) + bar_text(1, 2, 1, skipped, 200);
  EXPECT_EQ(line.find("-nan"), std::string::npos) << line;
  EXPECT_NE(line.find("loss nan"), std::string::npos) << line;
}

TEST(ChooseKeep, FollowsTheWishThenTheMemory) {
  struct Row {
    std::optional<bool> wish;
    int64_t all, budget;
    model::Keep keep;
    const char* says;
  };
  const Row rows[] = {{true, 10, 1000, model::Keep::InputOnly, "as asked"},
                      {false, 1000, 10, model::Keep::All, "as asked"},
                      {std::nullopt, 1000, 1000, model::Keep::All, "all kept"},
                      {std::nullopt, 1001, 1000, model::Keep::InputOnly, "recomputed per layer: keeping all would need"}};
  for (const Row& row : rows) {
    const KeepChoice choice = choose_keep(row.wish, row.all, 1, row.budget);
    EXPECT_EQ(choice.keep, row.keep);
    EXPECT_NE(choice.reason.find(row.says), std::string::npos) << choice.reason;
  }
}

TEST(Memory, IsMeasured) {
  EXPECT_GT(memory_use().resident_bytes, 1'000'000);
  EXPECT_GE(memory_use().peak_resident_bytes, memory_use().resident_bytes / 2);
  EXPECT_GT(available_memory(), 0);
}

}  // namespace
}  // namespace lockstep::train
