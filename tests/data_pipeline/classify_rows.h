#pragma once

#include "data_pipeline/classify_loading.h"

#include <nlohmann/json.hpp>

namespace lockstep::data::testing {

/// Holds the rows of `folder` against those of tests/data/golden/classify-rows.json whose "data" is `name`: what
/// transformers makes of the same texts. Returns how many there were.
inline int compare_with_transformers(const std::string& name, const std::string& folder, const ClassifyDataOptions& options) {
  const auto golden = nlohmann::json::parse(read_file(LOCKSTEP_TEST_DATA "/golden/classify-rows.json"));
  int num_compared = 0;
  for (const auto& item : golden) {
    if (item["data"] != name) continue;
    const auto tokenizer = text::Tokenizer::from_folder(std::string(LOCKSTEP_UNPACKED_TOKENIZERS "/") +
                                                        item["tokenizer"].get<std::string>());
    LoadClassify with{.options = options, .needs = {}, .tokenizer = &tokenizer, .num_threads = 2};
    with.options.dataset_name = folder;
    with.options.max_length = item["max_length"].get<int64_t>();
    with.options.dataset_train_split = item["split"].get<std::string>();
    with.needs.validation = Wanted::No;
    const ClassifySplit split = load(with).train.at(0);
    uint64_t hash = 0;
    for (const LabelledRow& row : split.rows) {
      for (size_t i = 0; i < row.ids.size(); ++i) {
        hash = hash * 1099511628211U + 2 * static_cast<uint64_t>(row.ids[i]) + static_cast<uint64_t>(row.type_ids[i]) + 1;
      }
    }
    EXPECT_EQ(std::to_string(hash), item["hash"].get<std::string>()) << item.dump();
    EXPECT_EQ(split.report.num_rows, item["num_rows"].get<int64_t>()) << item.dump();
    EXPECT_EQ(split.report.num_tokens, item["num_tokens"].get<int64_t>()) << item.dump();
    EXPECT_EQ(split.report.num_truncated, item["num_truncated"].get<int64_t>()) << item.dump();
    EXPECT_EQ(split.report.num_tokens_cut, item["num_tokens_cut"].get<int64_t>()) << item.dump();
    ++num_compared;
  }
  return num_compared;
}

}  // namespace lockstep::data::testing
