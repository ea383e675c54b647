#include "lockstep/data/saved_dataset.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/text/json_value.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace lockstep::data {
namespace {

using text::JsonValue;

constexpr const char* kState = "state.json";
constexpr const char* kSplits = "dataset_dict.json";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

[[noreturn]] void throw_broken(const fs::path& file, std::string_view what) {
  throw Error::data("{}: {}. Write the data set again with save_to_disk.", file.string(), what);
}

std::vector<fs::path> files_of_state(const fs::path& folder) {
  const fs::path state_file = folder / kState;
  const JsonValue state = JsonValue::parse(read_file(state_file), state_file.string());
  const auto list = state.find("_data_files");
  if (!list || !list->is_array()) throw_broken(state_file, "has no list _data_files");
  if (const auto indices = state.find("_indices_files"); indices && indices->size() > 0) {
    throw_broken(state_file, "lists _indices_files, an order of rows that older versions of datasets kept apart; it is not read");
  }
  std::vector<fs::path> files;
  for (size_t i = 0; i < list->size(); ++i) {
    const auto name = (*list)[i].find("filename");
    if (!name || !name->is_string()) throw_broken(state_file, "has an entry of _data_files without filename");
    files.push_back(folder / fs::path(name->as_string()).filename());
    if (!is_file(files.back())) {
      throw_broken(state_file, fmt::format("lists {}, which is not there", name->as_string()));
    }
  }
  return files;
}

std::vector<std::string> splits_of(const fs::path& list_file) {
  const auto list = JsonValue::parse(read_file(list_file), list_file.string()).find("splits");
  std::vector<std::string> names;
  for (size_t i = 0; list && list->is_array() && i < list->size(); ++i) names.push_back((*list)[i].as_string());
  if (names.empty()) throw_broken(list_file, "has no list splits");
  return names;
}

std::string own_split(const fs::path& folder) {
  const auto split = JsonValue::parse(read_file(folder / kState), (folder / kState).string()).find("_split");
  return split && split->is_string() ? split->as_string() : "train";
}

}  // namespace

bool is_saved_dataset(const fs::path& folder) {
  return (is_file(folder / kState) && is_file(folder / "dataset_info.json")) || is_file(folder / kSplits);
}

std::vector<fs::path> saved_dataset_files(const fs::path& folder, const std::string& split, bool must_exist) {
  if (is_file(folder / kSplits)) {
    const std::vector<std::string> names = splits_of(folder / kSplits);
    if (std::find(names.begin(), names.end(), split) != names.end()) return files_of_state(folder / split);
    if (!must_exist) return {};
    throw Error::data("--dataset_name {}: has no split '{}' (found: {}). Name one with --dataset_train_split.", folder.string(),
                      split, fmt::join(names, ", "));
  }
  // A data set alone is what there is to train on, whatever it is a part of.
  return must_exist || own_split(folder) == split ? files_of_state(folder) : std::vector<fs::path>();
}

}  // namespace lockstep::data
