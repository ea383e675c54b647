#pragma once

#include "lockstep/data/classify_split.h"
#include "lockstep/library/dataset.h"
#include "lockstep/text/tokenizer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What lies behind Tokenizer and Dataset. Not installed.
namespace lockstep {

struct Tokenizer::Impl {
  text::Tokenizer tokenizer;
};

struct TokenizerAccess {
  static const std::shared_ptr<const Tokenizer::Impl>& of(const Tokenizer& tokenizer) { return tokenizer.impl_; }
};

struct DatasetTokens {
  std::shared_ptr<const Tokenizer::Impl> tokenizer;
  data::Columns columns;
  std::string task;                     ///< of GLUE; empty without
  std::optional<int64_t> max_length;
  std::vector<data::EncodedTableRow> rows;
};

struct Dataset::Impl {
  std::vector<std::string> sources;     ///< files, or the name that was given
  std::vector<data::TableRow> rows;
  std::optional<DatasetTokens> tokens = {};  ///< one per row
};

struct DatasetAccess {
  static const Dataset::Impl& of(const Dataset& dataset) { return *dataset.impl_; }
  static Dataset make(Dataset::Impl impl) { return Dataset(std::make_shared<const Dataset::Impl>(std::move(impl))); }
};

/// Threads of this process: its share of the cores, or `wish`.
int threads_of_process(std::optional<int64_t> wish = {});

}  // namespace lockstep
