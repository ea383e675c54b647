#pragma once

#include "lockstep/data/classify_options.h"
#include "lockstep/data/classify_task.h"
#include "lockstep/data/label_set.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
class ThreadTeam;
}
namespace lockstep::text {
class Tokenizer;
}

/// From the user's rows to token sequences with labels, as transformers' run_glue.py and run_classification.py prepare
/// them, without padding.
namespace lockstep::data {

struct LabelledRow {
  std::vector<int32_t> ids;       ///< with the tokenizer's special tokens
  std::vector<int32_t> type_ids;  ///< same length: 0, or 1 for the second text where the tokenizer tells them apart
  /// One class index (single label), one 0/1 per class (multi label), one or more targets (regression); empty where the
  /// row has no label, which only rows to predict for may.
  std::vector<float> labels;
  int64_t source_row = 0;         ///< 0-based row of its split
};

/// What happened to a split, for the start-up report. No row is ever dropped, but for those that GLUE's own TSV files
/// hold incomplete, which are counted.
struct SplitReport {
  std::vector<std::string> files;
  int64_t num_rows = 0;
  int64_t num_left_out = 0;       ///< behind max_..._samples
  int64_t num_incomplete = 0;     ///< a task's TSV lines that end before a needed column
  int64_t num_repeated_keys = 0;  ///< rows of JSON lines with the same key twice: the last value holds, as in Python
  std::string first_repeated_key; ///< "FILE:LINE"
  int64_t num_truncated = 0;
  int64_t num_tokens_cut = 0;
  int64_t num_empty_texts = 0;    ///< rows with an empty text (or both)
  int64_t num_tokens = 0;
  int64_t longest = 0, shortest = 0;
  int64_t num_unlabelled = 0;
  std::vector<int64_t> label_counts;  ///< by class; of regression empty
  double lowest = 0, mean = 0, highest = 0;  ///< regression: the targets
  std::string example;            ///< the first row decoded with special tokens, shortened if long
  std::string example_label;
  /// Hash of all ids, type ids and labels, 16 digits: must agree on every rank, and on resume.
  std::string fingerprint;
};

struct ClassifySplit {
  std::string name;               ///< "train", "validation", "validation_matched", "test" ...; of a file given: its flag's
  std::vector<LabelledRow> rows;
  SplitReport report;
};

struct ClassifyDataset {
  LabelSet labels;
  Columns columns;
  std::string task;               ///< of GLUE; empty without
  std::optional<int64_t> max_length;  ///< what rows were cut to; nothing: neither flag, model nor tokenizer sets a limit
  std::vector<ClassifySplit> train;       ///< none, or one
  std::vector<ClassifySplit> validation;  ///< mnli has two
  std::vector<ClassifySplit> test;        ///< the same
  std::vector<std::string> notes; ///< one line each, for the user
};

enum class Wanted { No, IfThere, Yes };

/// What a run needs of the data, and what its model says.
struct ClassifyNeeds {
  Wanted train = Wanted::Yes;
  Wanted validation = Wanted::IfThere;
  Wanted test = Wanted::No;
  int64_t vocab_size = 0;                 ///< rows of the model's embedding
  std::optional<int64_t> max_positions = {};   ///< tokens that the model can take in a row, special ones included
  std::vector<std::string> label_names = {};   ///< id2label of its config.json; none, or placeholders: nobody named them
  int64_t num_labels = 0;                      ///< of its config.json
  std::string problem_type = {};               ///< of its config.json, or ""
};

/// Reads the splits one row at a time, tokenizes on the team's threads, cuts, turns labels into numbers. Rows keep their
/// order; of several faulty rows the first is reported.
/// Throws Error{Data} with file and line: malformed rows, missing columns or labels, labels unknown to the training rows,
/// rows without a token, ids outside `vocab_size`, a split that is not there; Error{Usage} for flags that do not fit:
/// a max_length beyond the model or without room for a text, a task with columns of another kind.
ClassifyDataset load_classify_dataset(const ClassifyDataOptions& options, const ClassifyNeeds& needs,
                                      const text::Tokenizer& tokenizer, ThreadTeam& team);

/// The report as lines for the console.
std::vector<std::string> report_lines(const ClassifyDataset& dataset);

}  // namespace lockstep::data
