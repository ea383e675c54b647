// Every decoder family as a user meets it: what is saved has the source's tensors, and the layout cannot be seen.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace lockstep::cli {
namespace {

class Families : public testing::TestWithParam<const char*> {
 protected:
  /// gpt2 has no chat template, and gets rows of text.
  std::string rows() const {
    if (std::string(GetParam()) != "gpt2") return kChats.string();
    std::string text;
    for (const std::string& line : lines_of(kChats)) text += "{\"text\": " + Json::parse(line)["messages"][1]["content"].dump() + "}\n";
    return scratch_.write("texts.jsonl", text).string();
  }

  fs::path train(const std::string& output, const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"sft", "--model_name_or_path", (kTinyModels / GetParam()).string(), "--dataset_name", rows(),
                                     "--max_length", "48", "--grain_tokens", "128", "--dtype", "auto", "--disable_tqdm",
                                     "--output_dir", (scratch_ / output).string()};
    args.insert(args.end(), more.begin(), more.end());
    const Ended ended = run(scratch_, args);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return scratch_ / output / "model.safetensors";
  }

  Scratch scratch_;
};

TEST_P(Families, ARunThatChangesNothingSavesTheSourcesTensors) {
  const fs::path saved = train("same", {"--max_steps", "1", "--learning_rate", "1e-30", "--per_device_train_batch_size", "4"});
  const auto tensors = [](const fs::path& file) {
    const RawSafetensors raw = read_raw(file);
    std::map<std::string, std::string> out;
    for (const auto& [name, entry] : raw.header.items()) {
      if (name == "__metadata__") continue;
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      out[name] = entry["dtype"].dump() + entry["shape"].dump() + raw.data.substr(begin, end - begin);
    }
    return out;
  };
  EXPECT_TRUE(tensors(saved) == tensors(kTinyModels / GetParam() / "model.safetensors"));
}

TEST_P(Families, TheLayoutCannotBeSeen) {
  const auto bits = [&](const std::string& output, const std::vector<std::string>& layout) {
    std::vector<std::string> args = {"--max_steps", "4", "--learning_rate", "1e-3", "--save_optimizer_state"};
    args.insert(args.end(), layout.begin(), layout.end());
    const bool sparse = read_json(kTinyModels / GetParam() / "config.json").contains("num_experts_per_tok");
    if (sparse) args.insert(args.end(), {"--router_aux_loss_coef", "0.02"});
    const fs::path folder = train(output, args).parent_path();
    std::string text = read_file(folder / "model.safetensors") + read_file(folder / "optimizer_state.safetensors");
    for (const std::string& line : lines_of(folder / "metrics.jsonl")) {
      const Json all = Json::parse(line);
      for (const char* key : {"loss", "grad_norm", "entropy", "aux_loss", "block_hashes"})
        if (all.contains(key)) text += all[key].dump() + "\n";
    }
    return text;
  };
  const std::string simplest = bits("simplest", {"--threads_per_process", "1", "--per_device_train_batch_size", "12"});
  EXPECT_TRUE(bits("two", {"--nproc_per_node", "2", "--per_device_train_batch_size", "6"}) == simplest);
  EXPECT_TRUE(bits("three", {"--nproc_per_node", "3", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2",
                             "--gradient_checkpointing", "true"}) == simplest);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Families, testing::Values("mistral", "gemma2", "phi3", "gpt2", "mixtral", "qwen3-moe"),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::cli
