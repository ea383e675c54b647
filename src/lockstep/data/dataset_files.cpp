#include "lockstep/data/dataset_files.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <system_error>

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kToJsonLines =
    "Write it as JSON lines, one object per line (in Python: datasets.Dataset.to_json or pandas' "
    "to_json(orient='records', lines=True)).";

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

bool is_json(const fs::path& path) {
  constexpr std::array<std::string_view, 3> kExtensions{".jsonl", ".ndjson", ".json"};
  return std::find(kExtensions.begin(), kExtensions.end(), lower_extension(path)) != kExtensions.end();
}

/// Rows in a format that others read; only worth a word when there is no JSON.
bool is_other_data(const fs::path& path) {
  constexpr std::array<std::string_view, 12> kExtensions{".parquet", ".arrow", ".csv", ".tsv", ".txt", ".gz",
                                                         ".zst",     ".xz",    ".bz2", ".zip", ".tar", ".pkl"};
  return std::find(kExtensions.begin(), kExtensions.end(), lower_extension(path)) != kExtensions.end();
}

/// JSON that describes data sets and models instead of being rows.
bool is_description(const fs::path& path) {
  constexpr std::array<std::string_view, 9> kNames{
      "dataset_info.json", "dataset_infos.json",    "dataset_dict.json",       "state.json",             "config.json",
      "tokenizer.json",    "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"};
  return std::find(kNames.begin(), kNames.end(), path.filename().string()) != kNames.end();
}

/// "train.jsonl", "train-00000-of-00002.jsonl" and "train_v2.json" are named after train; "trainer_state.json" is not.
bool is_named_after(const fs::path& path, std::string_view split) {
  const std::string file = path.filename().string();
  return file.starts_with(split) && file.size() > split.size() &&
         std::isalnum(static_cast<unsigned char>(file[split.size()])) == 0;
}

bool is_named_after_another_split(const fs::path& path, std::string_view split) {
  constexpr std::array<std::string_view, 7> kSplits{"train", "test", "validation", "valid", "val", "dev", "eval"};
  return std::any_of(kSplits.begin(), kSplits.end(), [&](std::string_view other) {
    return other != split && is_named_after(path, other);
  });
}

/// The regular files of a folder by name; none if it is not a folder.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return files;
  fs::directory_iterator entries(folder, error);
  if (error) {
    throw Error::data("--dataset_name: the folder {} cannot be read: {}. Check its permissions.", folder.string(),
                      error.message());
  }
  for (const auto& entry : entries) {
    if (entry.is_regular_file(error)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> rows_in(const fs::path& folder) {
  std::vector<fs::path> files = files_in(folder);
  std::erase_if(files, [](const fs::path& file) { return !is_json(file) || is_description(file); });
  return files;
}

std::vector<fs::path> of_split(std::vector<fs::path> files, const std::string& split) {
  std::erase_if(files, [&](const fs::path& file) { return !is_named_after(file, split); });
  return files;
}

std::string listed(const std::vector<fs::path>& files, const fs::path& folder) {
  constexpr size_t kMost = 10;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kMost, files.size()); ++i) {
    names.push_back(files[i].lexically_relative(folder).string());
  }
  if (files.size() > kMost) names.push_back(fmt::format("and {} more", files.size() - kMost));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<fs::path> append(std::vector<fs::path> first, const std::vector<fs::path>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<fs::path> files_of_folder(const fs::path& folder, const std::string& split) {
  const std::vector<fs::path> at_top = rows_in(folder);
  const std::vector<fs::path> in_data = rows_in(folder / "data");
  if (auto files = of_split(at_top, split); !files.empty()) return files;
  if (auto files = of_split(in_data, split); !files.empty()) return files;
  if (auto files = rows_in(folder / split); !files.empty()) return files;

  const std::vector<fs::path> candidates = append(at_top, in_data);
  if (candidates.size() == 1 && !is_named_after_another_split(candidates.front(), split)) return candidates;
  if (!candidates.empty()) {
    throw Error::data("--dataset_name {}: none of its files is named after the split '{}' (found: {}). "
                      "Give one file with --dataset_name, or another split with --dataset_train_split.",
                      folder.string(), split, listed(candidates, folder));
  }
  std::vector<fs::path> others = append(files_in(folder), files_in(folder / "data"));
  std::erase_if(others, [](const fs::path& file) { return !is_other_data(file); });
  if (!others.empty()) {
    throw Error::data("--dataset_name {}: the folder has no .jsonl or .json file, and other formats are not read yet "
                      "(found: {}). {}", folder.string(), listed(others, folder), kToJsonLines);
  }
  throw Error::data("--dataset_name {}: the folder has no .jsonl or .json file with rows. Put {}.jsonl into it, "
                    "or give a file.", folder.string(), split);
}

}  // namespace

std::vector<fs::path> dataset_files(const std::string& dataset_name, const std::string& split) {
  const fs::path path(dataset_name);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return files_of_folder(path, split);
  if (!fs::exists(status)) {
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
      throw Error::data("--dataset_name {}: {}. Check the path and its permissions.", dataset_name, error.message());
    }
    throw Error::data("--dataset_name {}: there is neither a file nor a folder of this name here, and data sets are "
                      "not fetched from the Hugging Face Hub yet. Check the path, or download the data set and give "
                      "its folder.", dataset_name);
  }
  if (is_json(path)) return {path};
  throw Error::data("--dataset_name {}: {} files are not read yet, only .jsonl and .json. {}", dataset_name,
                    path.has_extension() ? path.extension().string() : "such", kToJsonLines);
}

}  // namespace lockstep::data
