#include "lockstep/tensor/param_store.h"

#include <gtest/gtest.h>

namespace lockstep::tensor {
namespace {

ParamLayout two_blocks() {
  return ParamLayout({{.name = "w", .shape = {100, 50}, .block = 0},
                      {.name = "b", .shape = {100}, .block = 0},
                      {.name = "v", .shape = {3, 3}, .block = 1}});
}

TEST(ParamStore, GivesViewsIntoZeroedSegments) {
  const ParamLayout layout = two_blocks();
  ParamStore store(layout, at::kBFloat16, 3);
  for (int index = 0; index < layout.num_segments(); ++index) {
    EXPECT_EQ(store.segment(index).numel(), layout.padded_elements(index, 3));
    EXPECT_EQ(store.segment(index).count_nonzero().item<int64_t>(), 0);
  }
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const at::Tensor& weight = store.weight(id);
    const at::Tensor& segment = store.segment(layout.slot(id).segment);
    EXPECT_EQ(weight.sizes(), at::IntArrayRef(layout.spec(id).shape));
    EXPECT_TRUE(weight.is_contiguous());
    EXPECT_EQ(weight.data_ptr(), static_cast<char*>(segment.data_ptr()) +
                                     static_cast<size_t>(layout.slot(id).offset) * segment.element_size());
  }
  store.segment(0).fill_(2);
  EXPECT_EQ(store.weight(0).to(at::kFloat).sum().item<float>(), 2.0F * 5000);
}

TEST(ParamStore, HoldsVectorsInFloatUnlessEverythingIsDouble) {
  const ParamLayout layout = two_blocks();
  const ParamStore half(layout, at::kBFloat16, 1);
  EXPECT_EQ(half.weight(0).scalar_type(), at::kBFloat16);
  EXPECT_EQ(half.weight(1).scalar_type(), at::kFloat);
  const ParamStore wide(layout, at::kDouble, 1);
  EXPECT_EQ(wide.weight(0).scalar_type(), at::kDouble);
  EXPECT_EQ(wide.weight(1).scalar_type(), at::kDouble);
}

TEST(ParamStore, KeepsTheViewsOfAMovedStore) {
  const ParamLayout layout = two_blocks();
  ParamStore first(layout, at::kFloat, 2);
  first.segment(0).fill_(1);
  const ParamStore second = std::move(first);
  EXPECT_EQ(second.weight(0).sum().item<float>(), 5000);
}

}  // namespace
}  // namespace lockstep::tensor
