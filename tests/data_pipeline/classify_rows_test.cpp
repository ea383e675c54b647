// Equality with transformers on whole data sets: tests/data/golden/make_classify_rows.py.
#include "data_pipeline/classify_rows.h"

namespace lockstep::data::testing {
namespace {

TEST(ClassifyRows, OfTheSolutionPairsAreThoseOfTransformers) {
  EXPECT_EQ(compare_with_transformers("solution-pairs", LOCKSTEP_TEST_DATA "/solution-pairs",
                                      {.text_column = "question", .text_pair_column = "solution"}),
            6);
}

}  // namespace
}  // namespace lockstep::data::testing
