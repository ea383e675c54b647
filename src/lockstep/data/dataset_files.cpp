#include "lockstep/data/dataset_files.h"

#include "lockstep/base/error.h"
#include "lockstep/data/file_format.h"
#include "lockstep/data/saved_dataset.h"

#include <fmt/ranges.h>
#include <glob.h>

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

bool is_text_table(const fs::path& path) {
  const std::string extension = lower_extension(path);
  return extension == ".csv" || extension == ".tsv";
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

/// JSON that describes data sets, models and runs instead of being rows: an output folder may be the data's own.
bool is_description(const fs::path& path) {
  constexpr std::array<std::string_view, 29> kNames{
      "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json",
      // of models
      "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
      "added_tokens.json", "vocab.json", "chat_template.json", "preprocessor_config.json", "adapter_config.json",
      "model.safetensors.index.json", "pytorch_model.bin.index.json",
      // of runs, lockstep's and transformers'
      "run.json", "run.previous.json", "metrics.jsonl", "metrics.previous.jsonl", "trainer_state.json",
      "all_results.json", "train_results.json", "eval_results.json", "predict_results.json", "test_results.json",
      "eval_results.previous.json", "predict_results.previous.json", "predictions.jsonl"};
  return std::find(kNames.begin(), kNames.end(), path.filename().string()) != kNames.end();
}

/// "train.jsonl", "train-00000-of-00002.jsonl" and "train_v2.json" are named after train; "trainer.jsonl" is not.
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
    if (entry.is_regular_file(error)) {
      files.push_back(entry.path());
    } else if (file_format(entry.path()) && !entry.is_directory(error)) {
      throw Error::data("{}: looks like data but cannot be read ({}). Mend or remove it.", entry.path().string(),
                        entry.is_symlink(error) ? "a link to nothing" : "not a regular file");
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> rows_in(const fs::path& folder) {
  std::vector<fs::path> files = files_in(folder);
  std::erase_if(files, [](const fs::path& file) { return !file_format(file) || is_description(file); });
  // A README.txt is no data, unless there is nothing else.
  const auto is_text = [](const fs::path& file) { return file_format(file) == FileFormat::Text; };
  if (!std::all_of(files.begin(), files.end(), is_text)) std::erase_if(files, is_text);
  return files;
}

bool is_table(const fs::path& path) { return is_text_table(path) || (is_json(path) && !is_description(path)); }

std::vector<fs::path> tables_in(const fs::path& folder) {
  std::vector<fs::path> files = files_in(folder);
  std::erase_if(files, [](const fs::path& file) { return !is_table(file); });
  return files;
}

/// Hugging Face's words for a split, the split's own first. Of "validation_matched" the first word changes.
std::vector<std::string> names_of_split(const std::string& split) {
  static const std::array<std::vector<std::string>, 3> kNames{{{"train", "training"},
                                                               {"validation", "valid", "val", "dev"},
                                                               {"test", "testing", "eval", "evaluation"}}};
  const size_t end = std::min(split.find('_'), split.size());
  std::vector<std::string> names{split};
  for (const auto& group : kNames) {
    if (std::find(group.begin(), group.end(), split.substr(0, end)) == group.end()) continue;
    for (const std::string& name : group) {
      if (name + split.substr(end) != split) names.push_back(name + split.substr(end));
    }
  }
  return names;
}

/// Whether `word` stands in the file's name with no letter on either side.
bool has_word(const fs::path& path, std::string_view word) {
  const std::string stem = path.stem().string();
  const auto is_letter = [&](size_t at) { return std::isalpha(static_cast<unsigned char>(stem[at])) != 0; };
  for (size_t at = stem.find(word); at != std::string::npos; at = stem.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_letter(at - 1)) && (end == stem.size() || !is_letter(end))) return true;
  }
  return false;
}

bool belongs_to(const fs::path& path, const std::string& split) {
  const auto names = names_of_split(split);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return has_word(path, name); });
}

bool belongs_to_any_split(const fs::path& path) {
  return belongs_to(path, "train") || belongs_to(path, "validation") || belongs_to(path, "test");
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

std::vector<fs::path> named_after_split(const fs::path& folder, const std::string& split) {
  if (auto files = of_split(rows_in(folder), split); !files.empty()) return files;
  if (auto files = of_split(rows_in(folder / "data"), split); !files.empty()) return files;
  return rows_in(folder / split);
}

std::vector<fs::path> files_of_folder(const fs::path& folder, const std::string& split) {
  if (auto files = named_after_split(folder, split); !files.empty()) return files;
  const std::vector<fs::path> at_top = rows_in(folder);
  const std::vector<fs::path> in_data = rows_in(folder / "data");
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
    throw Error::data("--dataset_name {}: the folder has no file with rows in a format that is read: {} (found: {}). {}",
                      folder.string(), readable_extensions(), listed(others, folder), kToJsonLines);
  }
  throw Error::data("--dataset_name {}: the folder has no file with rows. Put {}.jsonl into it, or give a file.",
                    folder.string(), split);
}

/// Which one is meant cannot be known.
std::vector<fs::path> of_one_format(std::vector<fs::path> files, std::string_view name) {
  for (const fs::path& file : files) {
    if (file_format(file) == file_format(files.front())) continue;
    throw Error::data("--dataset_name {}: files of two formats: {} and {}. Remove one, or give a file or a pattern such as "
                      "'FOLDER/*.jsonl'.", name, files.front().string(), file.string());
  }
  return files;
}

bool is_pattern(std::string_view name) { return name.find_first_of("*?[") != std::string_view::npos; }

std::vector<fs::path> matches(const std::string& pattern) {
  if (pattern.find("**") != std::string::npos) {
    throw Error::data("--dataset_name {}: '**' is not there yet. Give patterns of one folder, such as 'FOLDER/*.jsonl'.", pattern);
  }
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
  std::vector<fs::path> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  std::erase_if(files, [](const fs::path& file) { return fs::is_directory(file) || !file_format(file); });
  if (!files.empty()) return of_one_format(std::move(files), pattern);
  throw Error::data("--dataset_name {}: no file that is read matches this pattern ({}). Check it; in a shell it needs quotes.",
                    pattern, readable_extensions());
}

void require_one_format(const std::vector<fs::path>& files, const std::string& split) {
  for (const fs::path& file : files) {
    if (lower_extension(file) == lower_extension(files.front())) continue;
    throw Error::data("the split '{}' is there in two formats: {} and {}. Remove one, or give a file with --train_file, "
                      "--validation_file or --test_file.", split, files.front().string(), file.string());
  }
}

std::vector<fs::path> tables_of_folder(const fs::path& folder, const std::string& split) {
  std::vector<fs::path> all;
  for (const fs::path& place : {folder, folder / "data"}) {
    std::vector<fs::path> files = tables_in(place);
    all = append(std::move(all), files);
    std::erase_if(files, [&](const fs::path& file) { return !belongs_to(file, split); });
    if (!files.empty()) return files;
  }
  for (const std::string& name : names_of_split(split)) {
    if (auto files = tables_in(folder / name); !files.empty()) return files;
  }
  if (split == "train" && all.size() == 1 && !belongs_to_any_split(all.front())) return all;
  return {};
}

[[noreturn]] void throw_no_such_data(const std::string& path, std::string_view flag, const std::error_code& error) {
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    throw Error::data("{} {}: {}. Check the path and its permissions.", flag, path, error.message());
  }
  throw Error::data("{} {}: there is neither a file nor a folder of this name here, and data sets are not fetched from "
                    "the Hugging Face Hub yet. Check the path, or download the data set and give its folder.", flag, path);
}

}  // namespace

fs::path table_file(const std::string& path, std::string_view flag) {
  std::error_code error;
  if (!fs::exists(path, error)) throw_no_such_data(path, flag, error);
  if (fs::is_directory(path)) throw Error::data("{} {}: is a folder. Give a file, or the folder with --dataset_name.", flag, path);
  if (!is_text_table(path) && !is_json(path)) {
    throw Error::data("{} {}: {} files are not read, only .jsonl, .json, .csv and .tsv. {}", flag, path,
                      fs::path(path).has_extension() ? fs::path(path).extension().string() : "such", kToJsonLines);
  }
  return path;
}

std::vector<fs::path> table_files(const std::string& dataset_name, const std::string& split) {
  std::error_code error;
  const fs::file_status status = fs::status(dataset_name, error);
  if (!fs::exists(status)) throw_no_such_data(dataset_name, "--dataset_name", error);
  if (!fs::is_directory(status)) {
    const fs::path file = table_file(dataset_name, "--dataset_name");
    return split == "train" ? std::vector{file} : std::vector<fs::path>{};
  }
  const auto files = tables_of_folder(dataset_name, split);
  require_one_format(files, split);
  return files;
}

std::string table_files_there(const std::string& dataset_name) {
  const fs::path folder = dataset_name;
  const std::string names = listed(append(tables_in(folder), tables_in(folder / "data")), folder);
  if (!names.empty()) return names;
  std::vector<fs::path> others = append(files_in(folder), files_in(folder / "data"));
  std::erase_if(others, [](const fs::path& file) { return !is_other_data(file); });
  return others.empty() ? "nothing" : listed(others, folder) + ", which are not read";
}

std::vector<fs::path> dataset_files_of_split(const std::string& dataset_name, const std::string& split) {
  if (is_saved_dataset(dataset_name)) return saved_dataset_files(dataset_name, split, /*must_exist=*/false);
  return of_one_format(named_after_split(dataset_name, split), dataset_name);
}

std::vector<fs::path> dataset_files(const std::string& dataset_name, const std::string& split) {
  const fs::path path(dataset_name);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    if (is_saved_dataset(path)) return saved_dataset_files(path, split, /*must_exist=*/true);
    return of_one_format(files_of_folder(path, split), dataset_name);
  }
  if (!fs::exists(status)) {
    if (is_pattern(dataset_name)) return matches(dataset_name);
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
      throw Error::data("--dataset_name {}: {}. Check the path and its permissions.", dataset_name, error.message());
    }
    throw Error::data("--dataset_name {}: there is neither a file nor a folder of this name here, and data sets are "
                      "not fetched from the Hugging Face Hub yet. Check the path, or download the data set and give "
                      "its folder.", dataset_name);
  }
  if (file_format(path)) return {path};
  throw Error::data("--dataset_name {}: {} files are not read, only {}. {}", dataset_name,
                    path.has_extension() ? path.extension().string() : "such", readable_extensions(), kToJsonLines);
}

}  // namespace lockstep::data
