#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// The files that `dataset_name` stands for, in formats that file_format() knows.
/// - A file: itself.
/// - A pattern with *, ? or [...] that names nothing itself: what it matches, by name.
/// - A folder that datasets' save_to_disk wrote: its files as state.json lists them, of the split where there are several.
/// - Another folder: the files of `split`, by name, from the first of these places that has any: FOLDER/split*,
///   FOLDER/data/split*, FOLDER/split/*; after the split's name comes no letter or digit. Without a match, the
///   folder's only such file, unless it is named after another split (test, validation ...). Text files count
///   where there are no others.
/// Throws Error{Data} naming what was found and what to do, also for files of two formats; a path that does not exist is told
/// apart from a name on the Hub, which cannot be fetched yet.
std::vector<std::filesystem::path> dataset_files(const std::string& dataset_name, const std::string& split);

/// The files of `split` (see above), never guessed; empty where DATASET is a file or has none.
std::vector<std::filesystem::path> dataset_files_of_split(const std::string& dataset_name, const std::string& split);

/// The same for tables (data/table.h), which may be .csv and .tsv too, and for splits that may be absent.
/// - A file: itself as the split "train", and no file for any other.
/// - A folder: the places above; a file belongs to a split if its name holds the split's name as a word of its own
///   (glue_train-00.csv), also under Hugging Face's other names: training; valid, val, dev; testing, eval, evaluation.
///   Without any file that is named after a split, a folder's only file is "train".
/// Nothing found is an empty result. Throws Error{Data} as above, and for a split in two formats.
std::vector<std::filesystem::path> table_files(const std::string& dataset_name, const std::string& split);

/// One file given by a flag of its own (`flag`: "--train_file"), checked to exist and to be a table.
std::filesystem::path table_file(const std::string& path, std::string_view flag);

/// The names of the data files in a folder (and its data/ folder), for messages.
std::string table_files_there(const std::string& dataset_name);

}  // namespace lockstep::data
