#include "lockstep/checkpoint/output_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cerrno>
#include <vector>

namespace lockstep::checkpoint {
namespace {

bool is_index_file(const std::string& name) { return name.ends_with(".safetensors.index.json"); }

bool is_weight_file(const std::string& name) {
  const bool weights = name.ends_with(".safetensors") || is_index_file(name);
  return weights && (name.starts_with("model") || name.starts_with("optimizer_state"));
}

/// What an earlier run of lockstep or of transformers' Trainer leaves, be it one that only evaluated or predicted.
bool looks_like_output(const fs::path& folder) {
  const auto marks = {"config.json", "run.json", "metrics.jsonl", "trainer_state.json", "training_args.bin",
                      "eval_results.json", "predict_results.json", "predictions.jsonl"};
  return std::any_of(marks.begin(), marks.end(), [&](const char* name) { return fs::exists(folder / name); });
}

/// A whole new model that waits to be moved out of this folder, file by file, into the one it lies in.
constexpr const char* kWaiting = ".model.new";

/// Of "." and ".tmp-PID-xxxxxxxx" around a folder's name (base/files.h AtomicFolder).
constexpr size_t kTempSuffixRoom = 32;

/// Without a slash at the end, absolute, links followed as far as the path exists.
fs::path resolved(const fs::path& folder) {
  std::error_code problem;
  const fs::path plain = fs::absolute(folder / "").lexically_normal().parent_path();
  const fs::path found = fs::weakly_canonical(plain, problem);
  return problem ? plain : found;
}

bool is_mount_point(const fs::path& folder) {
  struct statx status {};
  if (::statx(AT_FDCWD, folder.c_str(), 0, STATX_BASIC_STATS, &status) != 0) return false;
  if ((status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0) {
    return (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  }
  // Kernels before 5.8 do not say; another device than the parent's is a mount point all the same.
  struct stat own {}, above {};
  return ::stat(folder.c_str(), &own) == 0 && ::stat((folder / "..").c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

/// Is `folder` the current folder, or one that the current folder lies in?
bool is_where_we_stand(const fs::path& folder) {
  std::error_code problem;
  fs::path place = fs::current_path(problem);
  while (!problem && !fs::equivalent(place, folder, problem)) {
    if (place == place.parent_path()) return false;
    place = place.parent_path();
  }
  return !problem;
}

[[noreturn]] void fail(const fs::path& path, const std::string& operation, const std::error_code& code) {
  throw Error::environment("{}: cannot {}: {}. Check the disk and the path.", path.string(), operation, code.message());
}

/// A second name where the file system has such, else a copy.
void link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  fs::create_hard_link(from, to, problem);
  if (!problem) return;
  fs::copy(from, to, fs::copy_options::copy_symlinks, problem);
  if (problem) fail(from, "copy it to the new folder", problem);
}

void link_tree(const fs::path& from, const fs::path& to) {
  std::error_code problem;
  if (fs::is_directory(fs::symlink_status(from))) {
    fs::create_directories(to, problem);
    if (problem) fail(to, "create the folder", problem);
    for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
      link_tree(entry.path(), to / entry.path().filename());
    }
  } else if (!fs::exists(fs::symlink_status(to))) {
    link_or_copy(from, to);
  }
}

/// Files below `folder`, as paths relative to it: weights after the rest, their indices last.
std::vector<fs::path> files_in_order(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) files.push_back(entry.path().lexically_relative(folder));
  }
  const auto turn = [](const fs::path& file) {
    const std::string name = file.filename().string();
    return is_index_file(name) ? 2 : is_weight_file(name) ? 1 : 0;
  };
  std::sort(files.begin(), files.end(), [&](const fs::path& a, const fs::path& b) {
    return turn(a) != turn(b) ? turn(a) < turn(b) : a < b;
  });
  return files;
}

}  // namespace

void require_usable_output(const fs::path& folder, bool overwrite) {
  std::error_code problem;
  const fs::path name = folder.has_filename() ? folder : folder.parent_path();
  if (fs::is_symlink(fs::symlink_status(name, problem)) && !fs::exists(name, problem)) {
    throw Error::usage("--output_dir = {}: is a link to {}, which does not exist. Create that folder, or remove the "
                       "link.",
                       folder.string(), fs::read_symlink(name, problem).string());
  }
  if (fs::exists(folder, problem) && !fs::is_directory(folder)) {
    throw Error::usage("--output_dir = {}: is a file. Name a folder.", folder.string());
  }
  const bool exists = fs::exists(folder, problem);
  const bool empty = !exists || fs::is_empty(folder);
  if (!empty && !overwrite && !looks_like_output(folder)) {
    throw Error::usage("--output_dir = {}: holds files that are neither a model nor an earlier run. Choose another "
                       "folder, or give --overwrite_output_dir to add the model to them.",
                       folder.string());
  }
  if (exists) require_writable_folder(folder);
  if (!exists || why_not_exchangeable(folder).empty()) require_writable_folder(resolved(folder).parent_path());
}

std::string why_not_exchangeable(const fs::path& folder) {
  std::error_code problem;
  const fs::path place = resolved(folder);
  if (!fs::exists(folder, problem)) return {};
  if (is_mount_point(place)) return "is a mount point";
  if (place.filename().string().size() > NAME_MAX - kTempSuffixRoom) return "has too long a name for another beside it";
  if (is_where_we_stand(place)) return "is the current folder or holds it";
  if (::access(place.parent_path().c_str(), W_OK | X_OK) != 0) return "lies in a folder that may not be written";
  return {};
}

OutputFolder::OutputFolder(fs::path folder, bool overwrite) : folder_(std::move(folder)) {
  require_usable_output(folder_, overwrite);
  created_ = fs::create_directories(folder_);
  lock_.emplace(folder_);
  if (lock_->outcome() == FolderLock::Outcome::HeldByOther) {
    const std::string who = lock_->holder() > 0 ? fmt::format(" (pid {})", lock_->holder()) : "";
    throw Error::environment("--output_dir = {}: another run{} is writing there. Wait for it, or name another folder.",
                             folder_.string(), who);
  }
  if (fs::exists(folder_ / kWaiting)) {
    log::info("checkpoint", "{}: an earlier run was killed while it put its model in place; that is finished now.",
              folder_.string());
    finish_move();
  }
  if (lock_->outcome() == FolderLock::Outcome::Unsupported) {
    log::warn("checkpoint", "{} is on a file system without locks: make sure that no other run writes there.",
              folder_.string());
  }
}

OutputFolder::~OutputFolder() {
  exchanged_.reset();
  inside_.reset();
  // rmdir takes only empty folders.
  if (created_) ::rmdir(folder_.c_str());
}

bool OutputFolder::keep_previous(const std::string& name) {
  const fs::path file = folder_ / name, config = folder_ / "config.json";
  if (!fs::exists(file)) return false;
  // A record that is younger than the model is that of a run which failed: the model's own has been kept by then.
  const bool of_a_failed_run = fs::exists(config) && fs::last_write_time(config) < fs::last_write_time(file);
  if (of_a_failed_run && fs::exists(folder_ / (file.stem().string() + ".previous" + file.extension().string()))) {
    return false;
  }
  const fs::path kept = folder_ / (file.stem().string() + ".previous" + file.extension().string());
  std::error_code problem;
  fs::rename(file, kept, problem);
  if (problem) fail(file, "rename it to " + kept.filename().string(), problem);
  return true;
}

const fs::path& OutputFolder::staging() {
  if (!exchanged_ && !inside_) {
    const std::string reason = why_not_exchangeable(folder_);
    if (reason.empty()) {
      exchanged_.emplace(resolved(folder_));
    } else {
      log::info("checkpoint", "{} {}: the model's files are put there one by one, weights last.", folder_.string(),
                reason);
      inside_.emplace(fmt::format(".model.tmp-{}-", ::getpid()), folder_);
    }
  }
  return exchanged_ ? exchanged_->path() : inside_->path();
}

void OutputFolder::commit() {
  LS_CHECK(exchanged_ || inside_, "commit of {} before staging()", folder_.string());
  if (inside_) return move_file_by_file();
  carry_over(folder_, exchanged_->path());
  exchanged_->commit();
}

void OutputFolder::carry_over(const fs::path& from, const fs::path& to) const {
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (!is_weight_file(name)) link_tree(entry.path(), to / name);
  }
}

// From the rename on the new model is what the folder holds: whoever is killed later leaves it whole under kWaiting, beside
// no weights at all rather than beside older ones, and the next run on this folder finishes the move.
void OutputFolder::move_file_by_file() {
  const fs::path from = inside_->path();
  fsync_folder(from);
  std::error_code problem;
  fs::rename(from, folder_ / kWaiting, problem);
  if (problem) fail(from, "rename it to " + (folder_ / kWaiting).string(), problem);
  inside_.reset();
  fsync_folder(folder_);
  finish_move();
}

void OutputFolder::finish_move() {
  const fs::path from = folder_ / kWaiting;
  const std::vector<fs::path> files = files_in_order(from);
  std::error_code problem;
  const bool all_weights_wait = std::any_of(files.begin(), files.end(), [](const fs::path& file) {
    return is_weight_file(file.filename().string());
  });
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    if (all_weights_wait && is_weight_file(entry.path().filename().string())) fs::remove(entry.path(), problem);
    if (problem) fail(entry.path(), "remove the weights of the earlier model", problem);
  }
  for (const fs::path& file : files) {
    fs::create_directories((folder_ / file).parent_path(), problem);
    if (!problem) fs::rename(from / file, folder_ / file, problem);
    if (problem) fail(folder_ / file, "put the new file there", problem);
  }
  fs::remove_all(from, problem);
  fsync_folder(folder_);
}

}  // namespace lockstep::checkpoint
