// The file: a header, the report as JSON, the rows' sizes, the documents of packed rows, all ids, all marks. In the byte order of the
// machine; every part begins at a multiple of 8.
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"
#include "lockstep/data/token_cache.h"

#include <nlohmann/json.hpp>

#include <cstring>
#include <span>

namespace lockstep::data {
namespace {

using CacheJson = nlohmann::json;

constexpr uint64_t kMagic = 0x3130304b4f54534c;  // "LSTOK001": raise it when the content of the file changes

struct Header {
  uint64_t magic = kMagic;
  uint64_t checksum = 0;     ///< of all that follows the header
  uint64_t report_bytes = 0;
  uint64_t num_rows = 0;
  uint64_t num_documents = 0;
  uint64_t num_ids = 0;
};

struct RowSizes {
  int64_t source_row = 0;
  uint64_t num_ids = 0;
  uint64_t num_documents = 0;
};

uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

uint64_t body_bytes(const Header& header) {
  return padded(header.report_bytes) + header.num_rows * sizeof(RowSizes) + header.num_documents * sizeof(TokenRow::Document) +
         padded(header.num_ids * sizeof(int32_t)) + padded(header.num_ids);
}

template <class Report, class Field>
void each_packing_field(Report& packing, Field field) {
  field("strategy", packing.strategy);
  field("max_length", packing.max_length);
  field("num_documents", packing.num_documents);
  field("num_packed", packing.num_packed);
  field("num_without_target", packing.num_without_target);
  field("num_tokens", packing.num_tokens);
  field("num_tokens_lost", packing.num_tokens_lost);
  field("num_rows_cut", packing.num_rows_cut);
}

template <class Report, class Field>
void each_report_field(Report& report, Field field) {
  field("files", report.files);
  field("mixture", report.mixture);
  field("num_rows", report.num_rows);
  field("num_kept", report.num_kept);
  field("num_fully_masked", report.num_fully_masked);
  field("num_empty", report.num_empty);
  field("num_truncated", report.num_truncated);
  field("num_tokens_cut", report.num_tokens_cut);
  field("num_tokens", report.num_tokens);
  field("num_targets", report.num_targets);
  field("num_prompt_mismatch", report.num_prompt_mismatch);
  field("first_mismatch", report.first_mismatch);
  field("num_repeated_keys", report.num_repeated_keys);
  field("first_repeated_key", report.first_repeated_key);
  field("longest", report.longest);
  field("shortest", report.shortest);
  field("longest_document", report.longest_document);
  field("kind", report.kind);
  field("completion_only", report.completion_only);
  field("assistant_only", report.assistant_only);
  field("ignored_columns", report.ignored_columns);
  field("foreign_role", report.foreign_role);
  field("stop_token", report.stop_token);
  field("stop_token_is_target", report.stop_token_is_target);
  field("num_rows_without_stop", report.num_rows_without_stop);
  field("example", report.example);
  field("example_row", report.example_row);
  field("fingerprint", report.fingerprint);
}

std::string report_json(const DatasetReport& report) {
  CacheJson json;
  const auto into = [](CacheJson& object) { return [&object](const char* name, const auto& value) { object[name] = value; }; };
  each_report_field(report, into(json));
  if (report.max_length) json["max_length"] = *report.max_length;
  if (report.packing) each_packing_field(*report.packing, into(json["packing"]));
  return json.dump(-1, ' ', false, CacheJson::error_handler_t::replace);
}

DatasetReport report_from(std::string_view text) {
  const CacheJson json = CacheJson::parse(text);
  DatasetReport report;
  const auto from = [](const CacheJson& object) { return [&object](const char* name, auto& value) { object.at(name).get_to(value); }; };
  each_report_field(report, from(json));
  if (json.contains("max_length")) report.max_length = json["max_length"].get<int64_t>();
  if (json.contains("packing")) each_packing_field(report.packing.emplace(), from(json["packing"]));
  return report;
}

template <class T>
std::span<const T> take_values(std::span<const std::byte>& rest, uint64_t count) {
  const auto* begin = reinterpret_cast<const T*>(rest.data());
  rest = rest.subspan(padded(count * sizeof(T)));
  return {begin, count};
}

Dataset dataset_from(const Header& header, std::span<const std::byte> body) {
  const std::span<const char> report = take_values<char>(body, header.report_bytes);
  const auto sizes = take_values<RowSizes>(body, header.num_rows);
  auto documents = take_values<TokenRow::Document>(body, header.num_documents);
  auto ids = take_values<int32_t>(body, header.num_ids);
  auto trained = take_values<uint8_t>(body, header.num_ids);
  Dataset dataset;
  dataset.report = report_from({report.data(), report.size()});
  dataset.rows.reserve(sizes.size());
  for (const RowSizes& row : sizes) {
    TokenRow& next = dataset.rows.emplace_back();
    next.source_row = row.source_row;
    next.ids.assign(ids.begin(), ids.begin() + static_cast<int64_t>(row.num_ids));
    next.trained.assign(trained.begin(), trained.begin() + static_cast<int64_t>(row.num_ids));
    next.documents.assign(documents.begin(), documents.begin() + static_cast<int64_t>(row.num_documents));
    ids = ids.subspan(row.num_ids);
    trained = trained.subspan(row.num_ids);
    documents = documents.subspan(row.num_documents);
  }
  return dataset;
}

/// Collects what is written, in large pieces, padded.
class BodyWriter {
 public:
  template <class Use>
  explicit BodyWriter(Use use) : use_(std::move(use)) {}

  template <class T>
  void add(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    constexpr size_t kPieceBytes = size_t{1} << 22;
    if (buffer_.size() >= kPieceBytes) flush(buffer_.size() / 8 * 8);
  }
  void end_part() {
    buffer_.resize(padded(buffer_.size()));
    flush(buffer_.size());
  }

 private:
  void flush(size_t count) {
    use_(std::span<const std::byte>(buffer_).first(count));
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<int64_t>(count));
  }
  std::function<void(std::span<const std::byte>)> use_;
  std::vector<std::byte> buffer_;
};

Header write_body(const Dataset& dataset, const std::string& report, BodyWriter& out) {
  Header header;
  header.report_bytes = report.size();
  header.num_rows = dataset.rows.size();
  out.add(std::span<const char>(report));
  out.end_part();
  for (const TokenRow& row : dataset.rows) {
    const RowSizes sizes{row.source_row, row.ids.size(), row.documents.size()};
    out.add(std::span(&sizes, 1));
    header.num_ids += sizes.num_ids;
    header.num_documents += sizes.num_documents;
  }
  out.end_part();
  for (const TokenRow& row : dataset.rows) out.add(std::span<const TokenRow::Document>(row.documents));
  out.end_part();
  for (const TokenRow& row : dataset.rows) out.add(std::span<const int32_t>(row.ids));
  out.end_part();
  for (const TokenRow& row : dataset.rows) out.add(std::span<const uint8_t>(row.trained));
  out.end_part();
  return header;
}

/// Of any length, piece by piece: a hash of the hashes of 16 MiB.
uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr size_t kPieceBytes = size_t{1} << 24;
  PieceHash hash;
  for (size_t at = 0, piece = 0; at < bytes.size(); at += kPieceBytes, ++piece) {
    hash.add(piece, bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at)));
  }
  return hash.value();
}

}  // namespace

std::optional<Dataset> read_token_cache(const fs::path& file, std::string& fault) {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  try {
    const MappedFile content(file);
    std::span<const std::byte> bytes = content.bytes();
    Header header;
    if (bytes.size() < sizeof(Header)) throw Error::data("it is too short");
    std::memcpy(&header, bytes.data(), sizeof(Header));
    bytes = bytes.subspan(sizeof(Header));
    if (header.magic != kMagic) throw Error::data("it was written by another version");
    constexpr uint64_t kSane = uint64_t{1} << 48;
    if (std::max({header.report_bytes, header.num_rows, header.num_documents, header.num_ids}) > kSane ||
        bytes.size() != body_bytes(header)) {
      throw Error::data("its size is wrong");
    }
    if (checksum(bytes) != header.checksum) throw Error::data("its checksum is wrong");
    return dataset_from(header, bytes);
  } catch (const std::exception& failure) {
    fault = failure.what();
    return std::nullopt;
  }
}

void write_token_cache(const fs::path& file, const Dataset& dataset) {
  const std::string report = report_json(dataset.report);
  // Twice over the rows: the checksum stands before them, and a copy in memory would double what they need.
  PieceHash hash;
  std::vector<std::byte> waiting;
  uint64_t piece = 0;
  constexpr size_t kPieceBytes = size_t{1} << 24;
  const auto hash_pieces = [&](size_t least) {
    while (waiting.size() >= least && !waiting.empty()) {
      const size_t count = std::min(kPieceBytes, waiting.size());
      hash.add(piece++, std::span<const std::byte>(waiting).first(count));
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<int64_t>(count));
    }
  };
  BodyWriter hashing([&](std::span<const std::byte> bytes) {
    waiting.insert(waiting.end(), bytes.begin(), bytes.end());
    hash_pieces(kPieceBytes);
  });
  Header header = write_body(dataset, report, hashing);
  hash_pieces(1);
  header.checksum = hash.value();
  AtomicFile out(file);
  out.write(std::as_bytes(std::span(&header, 1)));
  BodyWriter writing([&](std::span<const std::byte> bytes) { out.write(bytes); });
  write_body(dataset, report, writing);
  out.commit();
}

}  // namespace lockstep::data
