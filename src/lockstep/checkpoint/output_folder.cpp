#include "lockstep/checkpoint/output_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <algorithm>

namespace lockstep::checkpoint {
namespace {

bool is_weight_file(const std::string& name) {
  const bool weights = name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  return weights && (name.starts_with("model") || name.starts_with("optimizer_state"));
}

/// What an earlier run of lockstep or of transformers' Trainer leaves.
bool looks_like_output(const fs::path& folder) {
  const auto marks = {"config.json", "run.json", "metrics.jsonl", "trainer_state.json", "training_args.bin"};
  return std::any_of(marks.begin(), marks.end(), [&](const char* name) { return fs::exists(folder / name); });
}

void link_tree(const fs::path& from, const fs::path& to) {
  if (fs::is_directory(fs::symlink_status(from))) {
    fs::create_directories(to);
    for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
      link_tree(entry.path(), to / entry.path().filename());
    }
  } else if (!fs::exists(fs::symlink_status(to))) {
    fs::create_hard_link(from, to);
  }
}

}  // namespace

void require_usable_output(const fs::path& folder, bool overwrite) {
  std::error_code problem;
  if (fs::exists(folder, problem) && !fs::is_directory(folder)) {
    throw Error::usage("--output_dir = {}: is a file. Name a folder.", folder.string());
  }
  const bool empty = !fs::exists(folder, problem) || fs::is_empty(folder);
  if (!empty && !overwrite && !looks_like_output(folder)) {
    throw Error::usage("--output_dir = {}: holds files that are neither a model nor an earlier run. Choose another "
                       "folder, or give --overwrite_output_dir to add the model to them.",
                       folder.string());
  }
  // The model is prepared beside the folder and moved: its parent must be writable.
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  const fs::path parent = absolute.has_filename() ? absolute.parent_path() : absolute.parent_path().parent_path();
  require_writable_folder(parent);
  if (fs::exists(folder, problem)) require_writable_folder(folder);
}

void carry_over(const fs::path& folder, const fs::path& aside) {
  if (!fs::exists(folder)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_weight_file(name)) continue;
    link_tree(entry.path(), aside / name);
  }
}

}  // namespace lockstep::checkpoint
