#pragma once

#include "lockstep/data/classify.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// One split, from its files to rows whose labels are not numbers yet. What reads rows elsewhere uses the parts.
namespace lockstep::data {

struct SplitSource {
  std::string name;
  std::vector<std::filesystem::path> files;
  std::optional<int64_t> max_rows;
};

struct SplitFormat {
  const GlueTask* task = nullptr;
  Columns columns;
  std::optional<int64_t> max_length;
  int64_t vocab_size = 0;
};

struct ReadSplit {
  ClassifySplit split;
  LabelColumn labels;  ///< one cell per row
};

/// A row as tokens.
struct EncodedTableRow {
  LabelledRow row;
  int64_t num_cut = 0;
  bool has_empty_text = false;
};
/// Thread-safe. Throws Error{Data} with the row's place.
EncodedTableRow encode_row(const TableRow& source, const SplitFormat& format, const text::Tokenizer& tokenizer);
/// Appends the row to the split and counts it; what comes before its tokens (SplitReport::num_rows ...) is the caller's.
void add_row(EncodedTableRow encoded, ClassifySplit& split);

/// The columns that fit the first row of `source`. Error{Data} if it has none.
Columns columns_of(const SplitSource& source, const ClassifyDataOptions& options, const GlueTask* task,
                   bool needs_label);

ReadSplit read_split(const SplitSource& source, const SplitFormat& format, const text::Tokenizer& tokenizer,
                     ThreadTeam& team);

/// Fills the rows' labels, and the counts, the example and the fingerprint of the report.
void set_labels(ReadSplit& read, const LabelSet& set, Unlabelled unlabelled, const text::Tokenizer& tokenizer);

}  // namespace lockstep::data
