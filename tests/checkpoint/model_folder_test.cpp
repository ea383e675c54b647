#include "lockstep/checkpoint/model_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/checkpoint/optimizer_state.h"
#include "lockstep/tensor/safetensors.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace lockstep::checkpoint {
namespace {

const fs::path kLlama = fs::path(LOCKSTEP_TEST_DATA) / "models" / "tiny" / "llama";

const tensor::ParamLayout& layout() {
  static const tensor::ParamLayout result({{.name = "embed.weight", .shape = {10, 8}, .block = 0},
                                           {.name = "layer.weight", .shape = {8, 8}, .block = 1},
                                           {.name = "layer.norm", .shape = {8}, .block = 1},
                                           {.name = "head.weight", .shape = {10, 8}, .block = 2}});
  return result;
}

at::Tensor value_of(tensor::ParamId id, double more = 0) {
  return at::full(layout().spec(id).shape, id + 0.1 + more, at::kFloat);
}

void save(const fs::path& folder, at::ScalarType dtype, int64_t max_shard_bytes) {
  save_model_folder(layout(), [](tensor::ParamId id) { return value_of(id); }, true,
                    {.source = kLlama, .folder = folder, .dtype = dtype, .chat_template = {},
                     .max_shard_bytes = max_shard_bytes});
}

void expect_all_there(const fs::path& folder, at::ScalarType dtype) {
  const tensor::WeightFiles files = tensor::WeightFiles::open(folder);
  EXPECT_EQ(files.names().size(), 4u);
  for (tensor::ParamId id = 0; id < layout().num_params(); ++id) {
    EXPECT_TRUE(at::equal(files.tensor(layout().spec(id).name), value_of(id).to(dtype))) << layout().spec(id).name;
  }
}

TEST(ModelFolder, IsOneFileWhenItFits) {
  const TempFolder folder("model");
  save(folder.path(), at::kBFloat16, 1 << 20);
  EXPECT_TRUE(fs::exists(folder.path() / "model.safetensors"));
  EXPECT_FALSE(fs::exists(folder.path() / "model.safetensors.index.json"));
  expect_all_there(folder.path(), at::kBFloat16);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder.path() / "config.json"))["torch_dtype"], "bfloat16");
}

TEST(ModelFolder, IsShardedWithAnIndexWhenItDoesNot) {
  const TempFolder folder("model");
  save(folder.path(), at::kFloat, 300);  // 320 + 256 + 32 + 320 bytes: each matrix fills a shard
  EXPECT_FALSE(fs::exists(folder.path() / "model.safetensors"));
  for (const char* name : {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                           "model-00003-of-00003.safetensors"}) {
    EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  }
  const auto index = nlohmann::json::parse(read_file(folder.path() / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 928);
  EXPECT_EQ(index["weight_map"]["layer.norm"], "model-00002-of-00003.safetensors");
  expect_all_there(folder.path(), at::kFloat);
}

TEST(ModelFolder, OnlyTheWritingRankTouchesTheDisk) {
  const TempFolder folder("model");
  int gathered = 0;
  save_model_folder(
      layout(),
      [&](tensor::ParamId id) {
        ++gathered;
        return value_of(id);
      },
      false, {.source = kLlama, .folder = folder.path(), .chat_template = {}});
  EXPECT_EQ(gathered, 4) << "it takes part in every gather";
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ModelFolder, AWeightThatIsNotFiniteIsNotSaved) {
  const auto refusal = [](double value, at::ScalarType dtype) -> std::string {
    const TempFolder folder("model");
    try {
      save_model_folder(
          layout(), [&](tensor::ParamId id) { return at::full(layout().spec(id).shape, value, at::kFloat); }, true,
          {.source = kLlama, .folder = folder.path(), .dtype = dtype, .chat_template = {}});
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::NonFinite);
      EXPECT_FALSE(fs::exists(folder.path() / "model.safetensors"));
      return error.what();
    }
  };
  EXPECT_NE(refusal(std::numeric_limits<double>::quiet_NaN(), at::kFloat).find("NaN or infinite"), std::string::npos);
  EXPECT_NE(refusal(1e6, at::kHalf).find("beyond the range of float16"), std::string::npos);
  EXPECT_EQ(refusal(1e6, at::kBFloat16), "");
}

TEST(OptimizerState, HasThreeTensorsPerParameterAndTheStep) {
  const TempFolder folder("optimizer");
  const fs::path path = folder.path() / "optimizer_state.safetensors";
  save_optimizer_state(
      layout(), 17,
      [](tensor::ParamId id) {
        std::vector<StateTensor> states;
        for (const char* name : {"master", "exp_avg", "exp_avg_sq"}) states.push_back({name, layout().spec(id).shape});
        return states;
      },
      [](tensor::ParamId id, const std::string& name) { return value_of(id, name == "master" ? 1 : 0); }, true, path);
  const tensor::SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), 12u);
  EXPECT_EQ(file.metadata().at("step"), "17");
  EXPECT_EQ(file.metadata().at("format"), "lockstep-optimizer-1");
  EXPECT_TRUE(at::equal(file.tensor("layer.norm.master"), value_of(2, 1)));
  EXPECT_TRUE(at::equal(file.tensor("layer.norm.exp_avg_sq"), value_of(2)));
}

}  // namespace
}  // namespace lockstep::checkpoint
