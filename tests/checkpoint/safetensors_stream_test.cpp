#include "lockstep/checkpoint/safetensors_stream.h"

#include "lockstep/tensor/safetensors.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace lockstep::checkpoint {
namespace {

std::vector<TensorPlan> make_plans() {
  return {{"b", at::kBFloat16, {3}}, {"a", at::kBFloat16, {2, 2}}, {"z", at::kFloat, {5}}};
}

TEST(Stream, SortsByDtypeThenName) {
  std::vector<TensorPlan> plans = make_plans();
  sort_for_file(plans);
  EXPECT_EQ(plans[0].name, "z");
  EXPECT_EQ(plans[1].name, "a");
  EXPECT_EQ(plans[2].name, "b");
  EXPECT_EQ(plans[1].num_bytes(), 8);
}

TEST(Stream, WritesTheBytesOfAFileWrittenAtOnce) {
  const TempFolder folder("stream");
  std::vector<TensorPlan> plans = make_plans();
  sort_for_file(plans);
  std::vector<tensor::NamedTensor> whole;
  SafetensorsStream stream(folder.path() / "streamed", plans, {{"format", "pt"}});
  for (const TensorPlan& plan : plans) {
    const at::Tensor values = at::arange(plan.num_bytes() / static_cast<int64_t>(c10::elementSize(plan.dtype)), at::kFloat);
    stream.append(values.reshape(plan.shape));
    whole.push_back({plan.name, values.reshape(plan.shape).to(plan.dtype)});
  }
  EXPECT_FALSE(fs::exists(folder.path() / "streamed")) << "nothing is there before it is whole";
  stream.commit();
  tensor::write_safetensors(folder.path() / "at_once", whole);
  EXPECT_TRUE(read_file(folder.path() / "streamed") == read_file(folder.path() / "at_once"));
}

TEST(Stream, LeavesNothingWhenItIsGivenUp) {
  const TempFolder folder("stream");
  {
    SafetensorsStream stream(folder.path() / "file", {{"a", at::kFloat, {4}}}, {});
    stream.append(at::arange(4, at::kFloat));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace lockstep::checkpoint
