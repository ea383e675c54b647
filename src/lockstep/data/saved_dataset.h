#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// Folders that save_to_disk of Hugging Face's datasets writes: one data set (state.json beside its .arrow files), or
/// one such folder per split (dataset_dict.json).
namespace lockstep::data {

bool is_saved_dataset(const std::filesystem::path& folder);

/// The Arrow files in the order of the rows. A folder of one data set is the split "train", unless state.json names it another.
/// Throws Error{Data} when files are missing or their lists broken; where `must_exist` is false, an empty result for a split
/// that is not there.
std::vector<std::filesystem::path> saved_dataset_files(const std::filesystem::path& folder, const std::string& split,
                                                       bool must_exist);

}  // namespace lockstep::data
