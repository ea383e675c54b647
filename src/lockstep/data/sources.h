#pragma once

#include "lockstep/data/options.h"
#include "lockstep/data/row_reader.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// Where rows come from: one data set, or a mixture.
namespace lockstep::data {

/// One data set, or a part of a mixture.
struct Source {
  std::string name;                            ///< as the user gave it
  std::vector<std::filesystem::path> files;    ///< read one after the other
  std::vector<std::string> columns = {};       ///< none: all
  std::optional<double> fraction = {};         ///< share of the mixture
  std::optional<int64_t> num_rows = {};        ///< of all; counted where fractions ask for it
  std::optional<int64_t> max_rows = {};        ///< the first so many are taken; none: all
};

/// What --dataset_name (with its training split) or --datasets stand for. Entries of --datasets are trl's: path, data_dir, data_files, split,
/// columns, fraction. Fractions are shares of the mixture: the first round(w * N) rows of each, where N is the largest
/// mixture for which each has rows enough; that reads all rows once, to count them. Throws Error{Usage} for entries
/// that make no sense, Error{Data} for files.
std::vector<Source> training_sources(const DataOptions& options);

/// The rows of several sources, one after the other, as files and options name them.
class RowSource {
 public:
  explicit RowSource(std::vector<Source> sources) : sources_(std::move(sources)) {}

  /// Throws Error{Data} as RowReader does, and for a source whose first row lacks one of its columns.
  std::optional<text::JsonRow> next();

 private:
  std::optional<text::JsonRow> next_of_source();
  text::JsonRow with_columns(text::JsonRow row) const;

  std::vector<Source> sources_;
  size_t source_ = 0;
  size_t next_file_ = 0;
  int64_t num_rows_ = 0;                       ///< taken of this source
  std::unique_ptr<RowReader> reader_;
};

}  // namespace lockstep::data
