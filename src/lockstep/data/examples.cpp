#include "lockstep/data/examples.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/data/dataset_files.h"
#include "lockstep/data/packing.h"
#include "lockstep/data/row_encoder.h"
#include "lockstep/data/row_preview.h"
#include "lockstep/data/sft_row.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/token_cache.h"
#include "lockstep/text/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace lockstep::data {
namespace {

constexpr size_t kRowsAtOnce = 1024;       // enough to keep a team busy, little to hold in memory
constexpr size_t kRowsOfGroup = 1000;      // bins cannot wait for rows that are not read: groups as in trl
constexpr size_t kShownCharacters = 300;   // at each end of a stretch of the example
constexpr size_t kQuotedCharacters = 40;   // the same in messages

/// Rows read together; a fault of the reader behind them waits until they are through, so that the first faulty row
/// of the data is the one reported.
struct Batch {
  std::vector<text::JsonRow> rows;
  std::exception_ptr fault;
};

Batch read_batch(RowSource& source) {
  Batch batch;
  try {
    while (batch.rows.size() < kRowsAtOnce) {
      auto row = source.next();
      if (!row) break;
      batch.rows.push_back(*std::move(row));
    }
  } catch (const Error&) {
    batch.fault = std::current_exception();
  }
  return batch;
}

/// What becomes of one row.
struct Prepared {
  TokenRow row;
  int64_t num_tokens_cut = 0;
  std::optional<std::string> prompt_mismatch;
  std::optional<std::string> repeated_key;  ///< where
  std::vector<std::string> ignored_columns;
  std::string foreign_role;
  std::optional<int32_t> stop_id;
};

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

/// The last trained token that is not white space, if it is a stop token.
std::optional<int32_t> trained_stop(const TokenRow& row, const text::Tokenizer& tokenizer,
                                    std::optional<int32_t> eos_id) {
  for (size_t i = row.ids.size(); i-- > 1;) {
    const int32_t id = row.ids[i];
    if (row.trained[i] == 0) continue;
    if (id == eos_id) return id;
    const std::string text = tokenizer.decode(std::span(&id, 1), /*skip_special_tokens=*/false);
    if (is_blank(text)) continue;
    const bool is_special = tokenizer.decode(std::span(&id, 1), /*skip_special_tokens=*/true).empty();
    return is_special ? std::optional(id) : std::nullopt;
  }
  return std::nullopt;
}

void check_vocabulary(std::span<const int32_t> ids, const text::Tokenizer& tokenizer, int64_t vocab_size,
                      std::string_view where) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    throw Error::data("{}: token {} ('{}') is outside the model's vocabulary (vocab_size = {}). The tokenizer of {} "
                      "does not belong to this model, or tokens were added to it: use the model's own tokenizer.",
                      where, id, one_line(tokenizer.id_to_token(id).value_or(""), kQuotedCharacters), vocab_size,
                      tokenizer.folder().string());
  }
}

/// Number of tokens cut.
int64_t cut_at(TokenRow& row, std::optional<int64_t> max_length, bool keep_start) {
  const auto size = static_cast<int64_t>(row.ids.size());
  if (!max_length || size <= *max_length) return 0;
  const int64_t excess = size - *max_length;
  const int64_t first = keep_start ? *max_length : 0;
  row.ids.erase(row.ids.begin() + first, row.ids.begin() + first + excess);
  row.trained.erase(row.trained.begin() + first, row.trained.begin() + first + excess);
  return excess;
}

/// The other strategies cut while they pack.
bool cuts_here(const DataOptions& options) { return !options.packing || options.packing_strategy == "bfd"; }

class Preparation {
 public:
  Preparation(const DataOptions& options, const text::Tokenizer& tokenizer, const text::ChatTemplate* chat_template,
              int64_t vocab_size, const text::JsonRow& first_row)
      : tokenizer_(tokenizer),
        vocab_size_(vocab_size),
        max_length_(cuts_here(options) ? options.max_length : std::nullopt),
        keep_start_(options.truncation_mode == "keep_start"),
        eos_id_(tokenizer.eos_id()) {
    auto special_tokens = tokenizer.special_tokens();
    if (options.eos_token) {
      eos_id_ = tokenizer.token_to_id(*options.eos_token);
      if (!eos_id_) {
        throw Error::usage("--eos_token {}: the tokenizer of {} has no such token. Name one of its vocabulary.",
                           *options.eos_token, tokenizer.folder().string());
      }
      special_tokens["eos_token"] = *options.eos_token;
    }
    format_.kind = row_kind(first_row, options.dataset_text_field);
    format_.text_field = options.dataset_text_field;
    format_.decided_at = first_row.where();
    if (is_plain_text(format_.kind)) {
      const auto eos = special_tokens.find("eos_token");
      if (eos == special_tokens.end()) {
        throw Error::data("the tokenizer of {} names no eos_token, so rows of text would have no end to learn. Name "
                          "one with --eos_token.", tokenizer.folder().string());
      }
      format_.eos_token = eos->second;
    }
    const bool with_prompt = has_prompt(format_.kind);
    if (options.completion_only_loss == true && !with_prompt && format_.kind != RowKind::Tokens) {
      throw Error::usage("--completion_only_loss needs rows of prompt and completion; the data is of kind {} ({}). "
                         "Leave it out.", name(format_.kind), format_.decided_at);
    }
    scope_ = {.completion_only = options.completion_only_loss.value_or(with_prompt),
              .assistant_only = options.assistant_only_loss};
    format_.completion_only = scope_.completion_only;
    encoder_.emplace(tokenizer, chat_template, std::move(special_tokens), format_.kind, scope_);
  }

  RowKind kind() const { return format_.kind; }
  const LossScope& scope() const { return scope_; }

  /// Thread-safe.
  Prepared prepare(const text::JsonRow& source) const {
    SftRow parsed = parse_row(source, format_);
    const std::string where = source.where();
    EncodedRow encoded = format_.kind == RowKind::Tokens
                             ? EncodedRow{std::move(parsed.ids), std::move(parsed.trained), {}}
                             : encoder_->encode(parsed, where);
    check_vocabulary(encoded.ids, tokenizer_, vocab_size_, where);

    Prepared result;
    result.row.ids = std::move(encoded.ids);
    result.row.trained = std::move(encoded.trained);
    result.num_tokens_cut = cut_at(result.row, max_length_, keep_start_);
    if (encoded.prompt_mismatch) {
      result.prompt_mismatch = fmt::format("{}: '{}'", where, one_line(*encoded.prompt_mismatch, kQuotedCharacters));
    }
    if (source.repeats_a_key()) result.repeated_key = where;
    result.ignored_columns = std::move(parsed.ignored_columns);
    result.foreign_role = std::move(parsed.foreign_role);
    result.stop_id = trained_stop(result.row, tokenizer_, eos_id_);
    return result;
  }

 private:
  const text::Tokenizer& tokenizer_;
  int64_t vocab_size_;
  std::optional<int64_t> max_length_;
  bool keep_start_;
  std::optional<int32_t> eos_id_;
  RowFormat format_;
  LossScope scope_;
  std::optional<RowEncoder> encoder_;
};

/// Counts a row, and keeps it if it can be trained on. Rows that are to be packed are kept with no target too.
void take(Prepared prepared, bool packs, Dataset& dataset, PieceHash& hash, std::map<int32_t, int64_t>& stops) {
  DatasetReport& report = dataset.report;
  TokenRow& row = prepared.row;
  row.source_row = report.num_rows++;
  if (prepared.num_tokens_cut > 0) ++report.num_truncated;
  report.num_tokens_cut += prepared.num_tokens_cut;
  if (prepared.prompt_mismatch && report.num_prompt_mismatch++ == 0) {
    report.first_mismatch = *std::move(prepared.prompt_mismatch);
  }
  if (prepared.repeated_key && report.num_repeated_keys++ == 0) {
    report.first_repeated_key = *std::move(prepared.repeated_key);
  }
  for (std::string& column : prepared.ignored_columns) {
    auto& known = report.ignored_columns;
    if (std::find(known.begin(), known.end(), column) == known.end()) known.push_back(std::move(column));
  }

  if (!prepared.foreign_role.empty()) report.foreign_role = std::move(prepared.foreign_role);
  const bool any_trained = std::find(row.trained.begin(), row.trained.end(), 1) != row.trained.end();
  const int64_t num_targets = row.num_targets();
  if (packs ? row.ids.empty() : num_targets == 0) {
    ++(row.ids.size() < 2 || any_trained ? report.num_empty : report.num_fully_masked);
    return;
  }
  const auto length = static_cast<int64_t>(row.ids.size());
  report.shortest = report.num_kept == 0 ? length : std::min(report.shortest, length);
  report.longest = std::max(report.longest, length);
  report.num_tokens += length;
  report.num_targets += num_targets;
  if (prepared.stop_id) ++stops[*prepared.stop_id];
  const auto kept = static_cast<uint64_t>(report.num_kept++);
  hash.add(2 * kept, std::as_bytes(std::span(row.ids)));
  hash.add(2 * kept + 1, std::as_bytes(std::span(row.trained)));
  dataset.rows.push_back(std::move(row));
}

void require_rows(const DatasetReport& report) {
  if (report.num_rows == 0) {
    throw Error::data("the data has no rows ({}). Check --dataset_name.", fmt::join(report.files, ", "));
  }
  if (report.num_kept > 0) return;
  throw Error::data("none of the {} rows can be trained on: {} have no trained token within max_length = {} ({} rows "
                    "were cut there), {} have fewer than two tokens. Raise --max_length if prompts are longer than "
                    "that, and check that the trained part of the rows ({}) is not empty.",
                    report.num_rows, report.num_fully_masked,
                    report.max_length ? std::to_string(*report.max_length) : "none", report.num_truncated,
                    report.num_empty, report.kind);
}

void check_packing(const DataOptions& options) {
  if (!options.packing) return;
  packing_strategy(options.packing_strategy);
  if (!options.max_length) {
    throw Error::usage("--packing with --max_length none: packed rows need a length. Try --max_length 1024.");
  }
  if (options.truncation_mode == "keep_end") {
    throw Error::usage("--truncation_mode keep_end with --packing: packing keeps the start of what is too long (bfd), or "
                       "all of it (bfd_split, wrapped). Leave --truncation_mode out.");
  }
}

void check_options(const DataOptions& options) {
  if (!options.dataset_name && options.datasets.empty()) {
    throw Error::usage("--dataset_name is missing. Give a JSONL file, or a folder that holds one.");
  }
  if (options.max_length && *options.max_length < 1) {
    throw Error::usage("--max_length {}: must be at least 1, or none for no cut. Try --max_length 1024.",
                       *options.max_length);
  }
  check_packing(options);
}

/// Joins the rows; the fingerprint then is of the packed ones.
void pack(const DataOptions& options, std::optional<int64_t> max_samples, Dataset& dataset, PieceHash& hash) {
  if (!options.packing) return;
  DatasetReport& report = dataset.report;
  const PackingStrategy strategy = packing_strategy(options.packing_strategy);
  report.packing.emplace().strategy = options.packing_strategy;
  report.packing->num_tokens_lost = report.num_tokens_cut;
  report.packing->num_rows_cut = report.num_truncated;
  const size_t group = max_samples ? kRowsOfGroup : std::max<size_t>(dataset.rows.size(), 1);
  std::vector<TokenRow> packed;
  for (size_t begin = 0; begin < dataset.rows.size(); begin += group) {
    const auto rows = std::span(dataset.rows).subspan(begin).first(std::min(group, dataset.rows.size() - begin));
    std::ranges::move(pack_rows(rows, *options.max_length, strategy, *report.packing), std::back_inserter(packed));
  }
  dataset.rows = std::move(packed);
  if (max_samples) dataset.rows.resize(std::min(dataset.rows.size(), static_cast<size_t>(*max_samples)));
  if (dataset.rows.empty()) {
    throw Error::data("no packed row has a trained token. Raise --max_length = {} if prompts are longer than that, and check "
                      "that the trained part of the rows ({}) is not empty.", *options.max_length, report.kind);
  }
  report.num_targets = 0;
  const std::string_view name = options.packing_strategy;
  hash.add(static_cast<uint64_t>(*options.max_length), std::as_bytes(std::span(name)));
  for (size_t i = 0; i < dataset.rows.size(); ++i) {
    report.num_targets += dataset.rows[i].num_targets();
    hash.add(2 * static_cast<uint64_t>(report.num_kept) + i, std::as_bytes(std::span(dataset.rows[i].documents)));
  }
  // Positions run on where documents are joined into one.
  if (strategy == PackingStrategy::Wrapped) report.longest_document = static_cast<int64_t>(dataset.rows.front().ids.size());
  if (strategy == PackingStrategy::BfdSplit) report.longest_document = std::min(report.longest, *options.max_length);
}

/// Unlike the training split this one is never guessed: a folder's only file would be trained on and judged by.
std::vector<Source> evaluation_sources(const DataOptions& options) {
  const std::string& split = options.dataset_test_split;
  if (!options.datasets.empty()) {
    throw Error::usage("--eval_strategy needs rows to evaluate on, and --datasets has none: a mixture is trained on as a whole. Use "
                       "--eval_strategy no, or train on one data set with --dataset_name.");
  }
  auto files = dataset_files_of_split(*options.dataset_name, split);
  if (!files.empty()) return {{.name = *options.dataset_name, .files = std::move(files)}};
  throw Error::usage("--eval_strategy needs rows to evaluate on, and {} has no file of the split '{}'. Put {}.jsonl into "
                     "the folder that --dataset_name names, name another split with --dataset_test_split, or use "
                     "--eval_strategy no.", *options.dataset_name, split, split);
}

/// Whether the rows so far are all that a run of `max_samples` samples needs.
bool is_enough(const Dataset& dataset, const DataOptions& options, std::optional<int64_t> max_samples) {
  if (!max_samples) return false;
  if (!options.packing) return static_cast<int64_t>(dataset.rows.size()) >= *max_samples;
  // No bin holds more than max_length tokens, and bins are made of whole groups.
  return dataset.report.num_tokens >= *max_samples * *options.max_length && dataset.rows.size() % kRowsOfGroup == 0;
}

/// What the user is told of sources whose rows are not all taken.
void describe(const std::vector<Source>& sources, DatasetReport& report) {
  for (const Source& source : sources) {
    for (const auto& file : source.files) report.files.push_back(file.string());
    if (!source.max_rows) continue;
    report.mixture.push_back(fmt::format("{}: the first {} of {} rows", source.name, *source.max_rows, *source.num_rows));
  }
}

Dataset load_rows(const std::vector<Source>& sources, const DataOptions& options, const text::Tokenizer& tokenizer,
                  const text::ChatTemplate* chat_template, int64_t vocab_size, ThreadTeam& team,
                  std::optional<int64_t> max_samples) {
  Dataset dataset;
  DatasetReport& report = dataset.report;
  describe(sources, report);
  report.max_length = options.max_length;

  RowSource source(sources);
  std::optional<Preparation> preparation;
  std::map<int32_t, int64_t> stops;  // rows that end in this token
  PieceHash hash;
  while (!is_enough(dataset, options, max_samples)) {
    const Batch batch = read_batch(source);
    if (!batch.rows.empty()) {
      if (!preparation) preparation.emplace(options, tokenizer, chat_template, vocab_size, batch.rows.front());
      std::vector<Prepared> prepared(batch.rows.size());
      team.run(batch.rows.size(), [&](size_t item, int) { prepared[item] = preparation->prepare(batch.rows[item]); });
      for (Prepared& row : prepared) {
        if (is_enough(dataset, options, max_samples)) break;
        take(std::move(row), options.packing, dataset, hash, stops);
      }
    }
    if (is_enough(dataset, options, max_samples)) break;
    if (batch.fault) std::rethrow_exception(batch.fault);
    if (batch.rows.size() < kRowsAtOnce) break;
  }

  if (preparation) {
    report.kind = name(preparation->kind());
    report.completion_only = preparation->scope().completion_only;
    report.assistant_only = preparation->scope().assistant_only;
  }
  require_rows(report);
  // A row that is cut may end in another special token, such as the one that begins a turn.
  const auto stop = std::max_element(stops.begin(), stops.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  report.num_rows_without_stop = report.num_kept - (stop == stops.end() ? 0 : stop->second);
  report.stop_token_is_target = report.num_rows_without_stop == 0;
  if (stop != stops.end()) report.stop_token = tokenizer.id_to_token(stop->first).value_or("");
  const auto with_target = std::find_if(dataset.rows.begin(), dataset.rows.end(),
                                        [](const TokenRow& row) { return row.num_targets() > 0; });
  if (with_target != dataset.rows.end()) {
    report.example = preview(*with_target, tokenizer, kShownCharacters);
    report.example_row = with_target->source_row;
  }
  report.longest_document = report.longest;
  pack(options, max_samples, dataset, hash);
  report.fingerprint = to_hex(hash.value());
  return dataset;
}

}  // namespace

int64_t TokenRow::num_targets() const {
  if (trained.empty()) return 0;
  if (documents.empty()) return std::count(trained.begin() + 1, trained.end(), uint8_t{1});
  int64_t count = std::count(trained.begin(), trained.end(), uint8_t{1});
  size_t start = 0;
  for (const Document& document : documents) {
    count -= trained[start];
    start += static_cast<size_t>(document.length);
  }
  return count;
}

Dataset load_sft_dataset(const DataOptions& options, const text::Tokenizer& tokenizer,
                         const text::ChatTemplate* chat_template, int64_t vocab_size, ThreadTeam& team,
                         std::optional<int64_t> max_samples) {
  check_options(options);
  const std::vector<Source> sources = training_sources(options);
  const auto make = [&] { return load_rows(sources, options, tokenizer, chat_template, vocab_size, team, max_samples); };
  const auto file = token_cache_file({options, sources, tokenizer, chat_template, vocab_size, max_samples});
  return file ? cached_dataset(*file, make) : make();
}

Dataset load_sft_evaluation(const DataOptions& options, const text::Tokenizer& tokenizer,
                            const text::ChatTemplate* chat_template, int64_t vocab_size, ThreadTeam& team) {
  check_options(options);
  DataOptions for_evaluation = options;
  for_evaluation.packing = options.eval_packing.value_or(options.packing);
  check_packing(for_evaluation);
  const std::vector<Source> sources = evaluation_sources(options);
  const auto make = [&] { return load_rows(sources, for_evaluation, tokenizer, chat_template, vocab_size, team, {}); };
  const auto file = token_cache_file({for_evaluation, sources, tokenizer, chat_template, vocab_size, {}});
  return file ? cached_dataset(*file, make) : make();
}

}  // namespace lockstep::data
