#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

/// The files that `dataset_name` stands for.
/// - A file: itself, if it is .jsonl, .ndjson or .json. Other formats are refused by name, with how to convert them.
/// - A folder: the .jsonl, .ndjson and .json files of `split`, by name, from the first of these places that has any:
///   FOLDER/split*, FOLDER/data/split*, FOLDER/split/*; after the split's name comes no letter or digit. Without a
///   match, the folder's only such file, unless it is named after another split (test, validation ...).
/// Throws Error{Data} naming what was found and what to do; a path that does not exist is told apart from a name
/// on the Hub, which cannot be fetched yet.
std::vector<std::filesystem::path> dataset_files(const std::string& dataset_name, const std::string& split);

}  // namespace lockstep::data
