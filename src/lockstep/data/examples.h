#pragma once

#include "lockstep/data/options.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
class ThreadTeam;
}
namespace lockstep::text {
class Tokenizer;
class ChatTemplate;
}

/// From the user's rows to token sequences with masks, as trl 1.16 prepares them for SFT.
namespace lockstep::data {

struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;   ///< 1 where the token is a target (labels != -100); same length
  int64_t source_row = 0;         ///< 0-based row of the user's data
  struct Document {
    int64_t length = 0;           ///< at least 1
    int64_t source_row = 0;
    bool operator==(const Document&) const = default;
  };
  /// A packed row: what it is made of, in order; attention, positions and targets restart in each. Empty: one document.
  std::vector<Document> documents = {};
  /// Targets after the shift by one: position 0 of a document predicts nothing and is never a target.
  int64_t num_targets() const;
};

/// What packing did (data/packing.h), for the report.
struct PackingReport {
  std::string strategy;
  int64_t max_length = 0;
  int64_t num_documents = 0;       ///< of all packed rows
  int64_t num_packed = 0;          ///< packed rows, those below included
  int64_t num_without_target = 0;  ///< packed rows that were left out
  int64_t num_tokens = 0;          ///< in all packed rows
  int64_t num_tokens_lost = 0;     ///< bfd: ends of rows that were too long
  int64_t num_rows_cut = 0;        ///< rows that lost their end, or whose tokens are in several documents
};

/// Everything that happened to the data, for the start-up report. Nothing is dropped or cut without being here.
struct DatasetReport {
  std::vector<std::string> files;
  std::vector<std::string> mixture; ///< of each data set with a share: "chats.jsonl: the first 120 of 300 rows"
  int64_t num_rows = 0;             ///< read
  int64_t num_kept = 0;
  int64_t num_fully_masked = 0;     ///< dropped: no trained token left after max_length
  int64_t num_empty = 0;            ///< dropped: fewer than two tokens, or only the first one is trained
  int64_t num_truncated = 0;        ///< of all rows read
  int64_t num_tokens_cut = 0;
  std::optional<int64_t> max_length;
  int64_t num_tokens = 0;           ///< kept
  int64_t num_targets = 0;
  int64_t num_prompt_mismatch = 0;  ///< prompt tokens were not a prefix of prompt + completion
  std::string first_mismatch;
  int64_t num_repeated_keys = 0;    ///< rows of JSON lines with the same key twice: the last value holds, as in Python
  std::string first_repeated_key;   ///< "FILE:LINE"
  int64_t longest = 0, shortest = 0;
  int64_t longest_document = 0;     ///< tokens that share their positions; differs from `longest` when rows are packed
  std::string kind;                 ///< "messages", "prompt-completion (messages)", "prompt-completion (text)", "text"
  bool completion_only = false;
  bool assistant_only = false;
  std::vector<std::string> ignored_columns;
  std::string foreign_role;         ///< of ShareGPT's conversations: "human" or "gpt", given to the template as it is
  std::optional<PackingReport> packing;  ///< the numbers above are of the rows before it
  std::string cache = {};           ///< "read from FILE" or "kept in FILE" (data/token_cache.h); empty: not kept
  std::string stop_token;           ///< the one meant below; empty if no row trains on any
  /// In every kept row the last trained token that is not white space is the eos token or another special token (the
  /// template's end of turn): what a model must learn to stop.
  bool stop_token_is_target = false;
  int64_t num_rows_without_stop = 0;
  std::string example;              ///< the first kept row decoded, trained parts in [[ ]], shortened if long
  int64_t example_row = 0;          ///< its source_row
  /// Hash of all kept ids and masks, 16 digits: must agree on every rank (a template may print the date).
  std::string fingerprint;
};

struct Dataset {
  std::vector<TokenRow> rows;
  DatasetReport report;
};

/// Reads DATASET or a mixture (data/sources.h), renders, tokenizes on the team's threads, masks, cuts at max_length, drops rows
/// without a target. With --packing, documents are cut and joined by data/packing.h, and none is dropped but the empty
/// ones, as trl does. Rows keep their order; of several faulty rows the first is reported. Throws Error{Data} with file
/// and line for malformed rows, missing columns, mixed kinds, ids outside `vocab_size`, and for data that leaves no row;
/// Error{Usage} for options that do not fit: max_length below 1, an eos_token outside the vocabulary, a loss option the
/// data has no object for.
/// `max_samples`: no more are read than are needed for so many; packing then joins groups of 1,000 rows.
Dataset load_sft_dataset(const DataOptions& options, const text::Tokenizer& tokenizer,
                         const text::ChatTemplate* chat_template, int64_t vocab_size, ThreadTeam& team,
                         std::optional<int64_t> max_samples = {});

/// The same for the rows to evaluate on: the files of dataset_test_split in the folder DATASET. Throws Error{Usage} where
/// there are none.
Dataset load_sft_evaluation(const DataOptions& options, const text::Tokenizer& tokenizer,
                            const text::ChatTemplate* chat_template, int64_t vocab_size, ThreadTeam& team);

/// The report as lines for the console.
std::vector<std::string> report_lines(const DatasetReport& report);

}  // namespace lockstep::data
