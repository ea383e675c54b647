#include "lockstep/data/sources.h"

#include "lockstep/base/error.h"
#include "lockstep/data/dataset_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lockstep::data {
namespace {

using text::JsonKind;
using text::JsonValue;

constexpr std::array<std::string_view, 7> kEntryKeys{"path", "name", "data_dir", "data_files", "split", "columns", "fraction"};

/// One entry of --datasets.
class Entry {
 public:
  Entry(const std::string& text, size_t number)
      : place_(fmt::format("--datasets, entry {}", number)), value_(JsonValue::parse(text, place_)) {
    if (!value_.is_object()) {
      throw Error::usage("{}: is {}, it must be a mapping with path, such as {{\"path\": \"chats.jsonl\"}}.", place_,
                         text::name(value_.kind()));
    }
    for (const std::string& key : value_.fields()) {
      if (std::find(kEntryKeys.begin(), kEntryKeys.end(), key) != kEntryKeys.end()) continue;
      throw Error::usage("{}: unknown key {}.{} Known are: {}.", place_, key,
                         key == "weight" || key == "weights" || key == "probability" ? " A share of the mixture is called fraction."
                                                                                      : "",
                         fmt::join(kEntryKeys, ", "));
    }
  }

  Source source() const {
    Source source;
    source.name = text("path").value_or("");
    if (source.name.empty()) throw Error::usage("{}: has no path. Name a file or a folder.", place_);
    if (const auto config = text("name")) {
      throw Error::usage("{}: name = {} is a configuration of a data set on the Hub; data sets are local files. Give the files "
                         "themselves with path.", place_, *config);
    }
    source.files = files(source.name);
    source.columns = words("columns");
    source.fraction = fraction();
    return source;
  }

 private:
  std::optional<JsonValue> field(std::string_view key) const {
    auto found = value_.find(key);
    if (found && found->is_null()) found.reset();
    return found;
  }

  std::optional<std::string> text(std::string_view key) const {
    const auto found = field(key);
    if (!found) return std::nullopt;
    if (!found->is_string()) {
      throw Error::usage("{}: {} is of type {}, it must be a string.", place_, key, text::name(found->kind()));
    }
    return found->as_string();
  }

  /// One string, or a list of strings.
  std::vector<std::string> words(std::string_view key) const {
    const auto found = field(key);
    return found ? words_of(*found, key) : std::vector<std::string>();
  }

  std::vector<std::string> words_of(const JsonValue& value, std::string_view key) const {
    if (value.is_string()) return {value.as_string()};
    std::vector<std::string> result;
    for (size_t i = 0; value.is_array() && i < value.size() && value[i].is_string(); ++i) {
      result.push_back(value[i].as_string());
    }
    if (result.empty() || result.size() != value.size()) {
      throw Error::usage("{}: {} must be a string or a list of strings.", place_, key);
    }
    return result;
  }

  std::optional<double> fraction() const {
    const auto found = field("fraction");
    if (!found) return std::nullopt;
    const bool is_number = found->kind() == JsonKind::Integer || found->kind() == JsonKind::Real;
    if (!is_number || !(found->as_number() >= 0)) {
      throw Error::usage("{}: fraction = {}: must be a number of at least 0, a share of the mixture.", place_, found->json());
    }
    return found->as_number();
  }

  std::string split() const {
    std::string name = text("split").value_or("train");
    if (name.find_first_of("[]+%") != std::string::npos) {
      throw Error::usage("{}: split = {}: parts and sums of splits are not there yet. Name one split, and give a fraction for "
                         "a part of it.", place_, name);
    }
    return name;
  }

  /// data_files lie in the folder `path`, or anywhere where path is the name of a format ("json", "parquet").
  std::vector<std::filesystem::path> files(const std::string& path) const {
    constexpr std::array<std::string_view, 5> kFormats{"json", "csv", "text", "parquet", "arrow"};
    const bool is_format = std::find(kFormats.begin(), kFormats.end(), path) != kFormats.end();
    std::filesystem::path folder = is_format ? std::filesystem::path() : std::filesystem::path(path);
    if (const auto inner = text("data_dir")) folder /= *inner;
    auto data_files = field("data_files");
    if (!data_files) return dataset_files(folder.empty() ? path : folder.string(), split());
    if (data_files->is_object()) {
      const auto of_split = data_files->find(split());
      if (!of_split) {
        throw Error::usage("{}: data_files has no split '{}' (found: {}).", place_, split(), fmt::join(data_files->fields(), ", "));
      }
      data_files = of_split;
    }
    std::vector<std::filesystem::path> all;
    for (const std::string& name : words_of(*data_files, "data_files")) {
      for (auto& file : dataset_files((folder / name).string(), split())) all.push_back(std::move(file));
    }
    return all;
  }

  std::string place_;
  JsonValue value_;
};

int64_t count_rows(Source source) {
  source.columns.clear();
  int64_t count = 0;
  for (RowSource rows({std::move(source)}); rows.next();) ++count;
  return count;
}

/// trl's arithmetic, operation by operation: equal shares must give equal numbers.
void apply_fractions(std::vector<Source>& sources) {
  const auto has_fraction = [](const Source& source) { return source.fraction.has_value(); };
  if (std::none_of(sources.begin(), sources.end(), has_fraction)) return;
  double sum = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].fraction) {
      throw Error::usage("--datasets, entry {}: has no fraction, but others have. Give one to all of them, or to none.", i + 1);
    }
    sum += *sources[i].fraction;
  }
  if (!(sum > 0)) throw Error::usage("--datasets: all fractions are 0, so no row would be taken. Give one above 0.");
  double total = INFINITY;
  for (Source& source : sources) {
    source.num_rows = count_rows(source);
    const double weight = *source.fraction / sum;
    if (weight > 0) total = std::min(total, static_cast<double>(*source.num_rows) / weight);
  }
  // Python's round: ties to even, as the default rounding of nearbyint.
  for (Source& source : sources) source.max_rows = static_cast<int64_t>(std::nearbyint(*source.fraction / sum * total));
}

}  // namespace

std::vector<Source> training_sources(const DataOptions& options) {
  if (options.datasets.empty()) {
    Source source;
    source.name = options.dataset_name.value_or("");
    source.files = dataset_files(source.name, options.dataset_train_split);
    return {source};
  }
  std::vector<std::string> entries = options.datasets;
  if (entries.size() == 1 && entries.front().starts_with('[')) {  // a list as one JSON text
    const JsonValue list = JsonValue::parse(entries.front(), "--datasets");
    entries.clear();
    for (size_t i = 0; i < list.size(); ++i) entries.push_back(list[i].json());
    if (entries.empty()) throw Error::usage("--datasets: the list is empty. Name at least one data set.");
  }
  std::vector<Source> sources;
  for (size_t i = 0; i < entries.size(); ++i) sources.push_back(Entry(entries[i], i + 1).source());
  const bool streams = options.streaming || options.dataset_streaming;
  for (size_t i = 0; streams && i < sources.size(); ++i) {
    if (sources[i].fraction) {
      throw Error::usage("--datasets, entry {}: fractions need the number of rows, which --streaming does not know. Leave one of "
                         "the two out.", i + 1);
    }
  }
  apply_fractions(sources);
  return sources;
}

std::optional<text::JsonRow> RowSource::next() {
  while (source_ < sources_.size()) {
    const Source& source = sources_[source_];
    if (!source.max_rows || num_rows_ < *source.max_rows) {
      if (auto row = next_of_source()) {
        ++num_rows_;
        return source.columns.empty() ? std::move(row) : with_columns(*std::move(row));
      }
    }
    ++source_;
    next_file_ = 0;
    num_rows_ = 0;
    reader_.reset();
  }
  return std::nullopt;
}

std::optional<text::JsonRow> RowSource::next_of_source() {
  const Source& source = sources_[source_];
  while (true) {
    if (!reader_) {
      if (next_file_ == source.files.size()) return std::nullopt;
      reader_ = open_rows(source.files[next_file_++]);
    }
    if (auto row = reader_->next()) return row;
    reader_.reset();
  }
}

text::JsonRow RowSource::with_columns(text::JsonRow row) const {
  const Source& source = sources_[source_];
  for (const std::string& column : source.columns) {
    if (num_rows_ > 1 || row.value.find(column)) continue;
    throw Error::data("{}: has no column {} (found: {}), which --datasets asks for of {}. Correct columns.", row.where(), column,
                      fmt::join(row.value.fields(), ", "), source.name);
  }
  row.value = row.value.with_fields(source.columns);
  return row;
}

}  // namespace lockstep::data
