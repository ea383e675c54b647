// MRPC must not be copied: it is read from $LOCKSTEP_SHARED/data/mrpc.
#include "data_pipeline/classify_rows.h"

#include <cstdlib>

namespace lockstep::data::testing {
namespace {

std::string mrpc() {
  const char* shared = std::getenv("LOCKSTEP_SHARED");
  return (fs::path(shared == nullptr ? "LOCKSTEP_SHARED is not set" : shared) / "data/mrpc").string();
}

TEST(Mrpc, TheRowsAreThoseOfTransformers) {
  EXPECT_EQ(compare_with_transformers("mrpc", mrpc(), {.task = "mrpc"}), 10);
}

TEST(Mrpc, HasTheKnownSplitsAndLabels) {
  LoadClassify with;
  with.options.task = "mrpc";
  with.options.dataset_name = mrpc();
  with.needs.test = Wanted::Yes;
  const ClassifyDataset data = load(with);
  EXPECT_EQ(data.train[0].report.label_counts, (std::vector<int64_t>{1199, 2469}));
  EXPECT_EQ(data.validation[0].report.label_counts, (std::vector<int64_t>{124, 284}));
  EXPECT_EQ(data.test[0].report.label_counts, (std::vector<int64_t>{578, 1147}));
  // Without --task the same columns are found, and classes called 0 and 1.
  with.options.task.reset();
  const ClassifyDataset guessed = load(with);
  EXPECT_EQ(guessed.train[0].report.fingerprint, data.train[0].report.fingerprint);
  EXPECT_EQ(guessed.labels.names(), (std::vector<std::string>{"0", "1"}));
}

}  // namespace
}  // namespace lockstep::data::testing
