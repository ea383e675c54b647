#include "lockstep/tensor/safetensors.h"

#include "lockstep/base/error.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace lockstep::tensor {
namespace {

const fs::path kTiny = fs::path(LOCKSTEP_TEST_DATA) / "models/tiny";

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

TEST(Safetensors, ReadsAPublishedLayout) {
  const SafetensorsFile file(kTiny / "llama/model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const SafetensorsEntry& entry = file.entries().at("model.embed_tokens.weight");
  EXPECT_EQ(entry.dtype, at::kFloat);
  EXPECT_EQ(entry.shape, (std::vector<int64_t>{512, 64}));
  const at::Tensor weight = file.tensor("model.embed_tokens.weight");
  EXPECT_EQ(weight.sizes(), at::IntArrayRef(entry.shape));
  EXPECT_TRUE(weight.isfinite().all().item<bool>());
  EXPECT_THROW(file.tensor("model.embed_tokens.bias"), Error);
}

/// The files of tests/data were written by Python's safetensors.
TEST(Safetensors, WritesTheBytesThatHuggingFaceWrites) {
  const TempFolder folder("safetensors");
  for (const char* name : {"llama/model.safetensors", "qwen3/model.safetensors", "qwen2/model.safetensors",
                           "llama-rope3/model.safetensors", "llama-sharded/model-00002-of-00004.safetensors"}) {
    const SafetensorsFile original(kTiny / name);
    std::vector<NamedTensor> tensors;
    for (const auto& [tensor, entry] : original.entries()) {
      tensors.insert(tensors.begin(), {tensor, original.tensor(tensor)});
    }
    write_safetensors(folder.path() / "copy.safetensors", tensors, original.metadata());
    EXPECT_TRUE(read_file(kTiny / name) == read_file(folder.path() / "copy.safetensors")) << name;
  }
}

TEST(Safetensors, KeepsEveryDtypeAndShapeThroughARoundTrip) {
  const TempFolder folder("safetensors");
  const std::vector<at::ScalarType> dtypes{at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                           at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType dtype : dtypes) {
    tensors.push_back({std::string("odd/") + c10::toString(dtype), at::arange(105).reshape({3, 5, 7}).to(dtype)});
  }
  tensors.push_back({"scalar", at::full({}, 2.5)});
  tensors.push_back({"empty", at::zeros({0, 4})});
  tensors.push_back({"quote \" and \\ and \xC3\xA9", at::ones({1})});
  const fs::path path = folder.path() / "all.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "a \"b\""}});

  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("note"), "a \"b\"");
  for (const NamedTensor& want : tensors) {
    EXPECT_TRUE(same_bytes(file.tensor(want.name), want.tensor)) << want.name;
  }
}

TEST(Safetensors, OrdersByDtypeThenNameWhateverTheOrderGiven) {
  const TempFolder folder("safetensors");
  const std::vector<NamedTensor> tensors{{"b", at::ones({2})},
                                         {"c", at::ones({2}, at::TensorOptions().dtype(at::kBFloat16))},
                                         {"a", at::ones({2})},
                                         {"d", at::ones({2}, at::TensorOptions().dtype(at::kLong))}};
  write_safetensors(folder.path() / "one", tensors, {});
  write_safetensors(folder.path() / "two", {tensors.rbegin(), tensors.rend()}, {});
  const std::string bytes = read_file(folder.path() / "one");
  EXPECT_EQ(bytes, read_file(folder.path() / "two"));
  EXPECT_EQ(bytes.substr(8, bytes.find_last_of('}') - 7),
            R"({"d":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
            R"("a":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},)"
            R"("b":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},)"
            R"("c":{"dtype":"BF16","shape":[2],"data_offsets":[32,36]}})");
}

TEST(Safetensors, RefusesToWriteANameTwice) {
  const TempFolder folder("safetensors");
  const fs::path path = folder.path() / "twice";
  EXPECT_THROW(write_safetensors(path, {{"a", at::ones({1})}, {"a", at::ones({1})}}), Error);
  EXPECT_THROW(write_safetensors(path, {{"a", at::ones({2, 3}).t()}}), Error);
  EXPECT_FALSE(fs::exists(path));
}

TEST(WeightFiles, ReadOneFileOrItsShardsAlike) {
  const WeightFiles single = WeightFiles::open(kTiny / "llama");
  const WeightFiles sharded = WeightFiles::open(kTiny / "llama-sharded");
  EXPECT_EQ(single.names(), sharded.names());
  EXPECT_GT(single.names().size(), 20U);
  for (const std::string& name : single.names()) {
    EXPECT_TRUE(same_bytes(single.tensor(name), sharded.tensor(name))) << name;
  }
  EXPECT_EQ(fs::path(single.file_of("lm_head.weight")).filename(), "model.safetensors");
  EXPECT_TRUE(fs::path(sharded.file_of("lm_head.weight")).filename().string().starts_with("model-0000"));
  EXPECT_TRUE(single.contains("lm_head.weight"));
  EXPECT_FALSE(single.contains("lm_head.bias"));
  EXPECT_THROW(single.tensor("lm_head.bias"), Error);
}

}  // namespace
}  // namespace lockstep::tensor
