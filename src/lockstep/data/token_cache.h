#pragma once

#include "lockstep/data/examples.h"
#include "lockstep/data/sources.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Finished rows kept as files, so that tokens are made once: by whichever process or node comes first.
namespace lockstep::data {

/// All that decides the rows.
struct CacheInputs {
  const DataOptions& options;                ///< packing as it is for these rows
  const std::vector<Source>& sources;
  const text::Tokenizer& tokenizer;
  const text::ChatTemplate* chat_template;   ///< null: none
  int64_t vocab_size = 0;
  std::optional<int64_t> max_samples = {};
};

/// The file for these inputs in the folder that --token_cache names, or nothing: it is none, or auto and the sources are
/// small or no folder can be had. Its name is a hash of the sources' bytes, of the tokenizer's files, the template, the
/// options and, for templates that print the date, the day.
std::optional<std::filesystem::path> token_cache_file(const CacheInputs& inputs);

/// The rows in `file`, else those that `make` makes, which are then kept there. One process makes them, others wait for
/// its lock, for half an hour at most, then make their own. A damaged file is reported and made anew. A file that cannot be written is reported.
Dataset cached_dataset(const std::filesystem::path& file, const std::function<Dataset()>& make);

/// For tests. Nothing for a file that is not there; `fault` says why one that is cannot be used.
std::optional<Dataset> read_token_cache(const std::filesystem::path& file, std::string& fault);
/// Appears whole or not at all. Throws Error{Environment}.
void write_token_cache(const std::filesystem::path& file, const Dataset& dataset);

}  // namespace lockstep::data
