#include "lockstep/checkpoint/checkpoint_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/file_hash.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kPartial = ".partial", kRemoving = ".removing", kProbe = ".probe";

/// Where a file is missing, whose share it was.
std::string whose(const std::string& name, const Manifest& manifest) {
  for (int rank = 0; rank < manifest.world_size; ++rank) {
    if (name == part_file(rank, manifest.world_size)) {
      return fmt::format(": the share of rank {} of the {} that wrote this checkpoint", rank, manifest.world_size);
    }
  }
  return "";
}

/// Nothing when the file is there and has its size.
std::optional<std::string> size_problem(const fs::path& checkpoint, const ManifestFile& file, const Manifest& manifest) {
  const fs::path path = checkpoint / file.name;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return fmt::format("{} is missing{}", path.string(), whose(file.name, manifest));
  }
  if (status.st_size == file.bytes) return std::nullopt;
  return fmt::format("{} has {} bytes, the manifest says {}: it {}", path.string(), status.st_size, file.bytes,
                     status.st_size < file.bytes ? "is cut off" : "was changed");
}

std::optional<std::string> content_problem(const fs::path& checkpoint, const ManifestFile& file, ThreadTeam* team) {
  const fs::path path = checkpoint / file.name;
  try {
    const uint64_t found = hash_of_file(path, team);
    if (found == file.hash) return std::nullopt;
    return fmt::format("{} has the hash {:016x}, the manifest says {:016x}: its content was changed", path.string(), found,
                       file.hash);
  } catch (const Error& problem) {
    return problem.what();
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string listed(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

/// The folder as the user names it, without a slash at its end.
fs::path plain(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

std::string what_is_in(const fs::path& output) {
  std::vector<std::string> lines;
  for (const FoundCheckpoint& found : list_checkpoints(output)) {
    lines.push_back(found.path.string() + (found.problem.empty() ? " (complete)" : ": " + found.problem));
  }
  if (lines.empty()) return fmt::format("There is none in {}.", output.string());
  return fmt::format("In {}:{}", output.string(), listed(lines));
}

fs::path last_checkpoint(const fs::path& output, std::vector<std::string>* passed_over,
                         const std::function<bool(const fs::path&)>& belongs) {
  std::vector<FoundCheckpoint> found = list_checkpoints(output);
  const auto problem_of = [&](const FoundCheckpoint& checkpoint) {
    if (!checkpoint.problem.empty() || !belongs || belongs(checkpoint.path)) return checkpoint.problem;
    return fmt::format("{} is of an earlier run in this folder. To go on from it, give its name.", checkpoint.path.string());
  };
  const bool any_complete = std::any_of(found.begin(), found.end(), [](const FoundCheckpoint& one) { return one.problem.empty(); });
  while (!found.empty() && !problem_of(found.back()).empty()) {
    if (passed_over != nullptr) passed_over->push_back(problem_of(found.back()));
    found.pop_back();
  }
  if (!found.empty()) return found.back().path;
  throw Error::usage("--resume_from_checkpoint last: no complete checkpoint to go on from. {}{} Leave the option out to start "
                     "from the beginning.",
                     what_is_in(output), any_complete ? "\nThey are of an earlier run in this folder: to go on from one, give its name." : "");
}

}  // namespace

std::string checkpoint_name(int64_t update) { return fmt::format("{}{}", kPrefix, update); }

std::string partial_name(int64_t update) { return fmt::format(".{}{}{}", kPrefix, update, kPartial); }

std::string removing_name(int64_t update) { return fmt::format(".{}{}{}", kPrefix, update, kRemoving); }

std::string probe_name(int64_t number) { return fmt::format(".{}{}{}", kPrefix, number, kProbe); }

std::optional<int64_t> update_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t update = 0;
  if (!is_number(name) || std::from_chars(name.data(), name.data() + name.size(), update).ec != std::errc()) {
    return std::nullopt;
  }
  return update;
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestFile;
  return parse_manifest(read_file(path), path.string());
}

std::vector<std::string> problems_of(const fs::path& checkpoint, Verify how, ThreadTeam* team, FileShare share) {
  if (!fs::exists(checkpoint / kManifestFile)) {
    return {fmt::format("{} has no {}: it was not finished, or another program wrote it", checkpoint.string(),
                        kManifestFile)};
  }
  const Manifest manifest = read_manifest(checkpoint);
  std::vector<std::string> problems;
  for (auto i = static_cast<size_t>(share.index); i < manifest.files.size(); i += static_cast<size_t>(share.count)) {
    const ManifestFile& file = manifest.files[i];
    std::optional<std::string> problem = size_problem(checkpoint, file, manifest);
    if (!problem && how == Verify::Content) problem = content_problem(checkpoint, file, team);
    if (problem) problems.push_back(std::move(*problem));
  }
  return problems;
}

std::vector<FoundCheckpoint> list_checkpoints(const fs::path& output) {
  std::vector<FoundCheckpoint> found;
  std::error_code code;
  for (fs::directory_iterator it(output, code), end; !code && it != end; it.increment(code)) {
    const auto update = update_of(it->path().filename().string());
    std::error_code ignored;
    if (!update || !it->is_directory(ignored)) continue;
    FoundCheckpoint one{.path = it->path(), .update = *update, .problem = {}};
    try {
      const std::vector<std::string> problems = problems_of(one.path, Verify::Sizes);
      if (!problems.empty()) one.problem = problems.front();
    } catch (const Error& problem) {
      one.problem = problem.what();
    }
    found.push_back(std::move(one));
  }
  std::sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return a.update != b.update ? a.update < b.update : a.path < b.path;
  });
  return found;
}

fs::path find_checkpoint(const fs::path& output, const std::string& wish, std::vector<std::string>* passed_over,
                         const std::function<bool(const fs::path&)>& belongs) {
  if (wish == "last" || wish == "true" || wish == "True") return last_checkpoint(output, passed_over, belongs);
  const fs::path path = plain(expand_user(wish));
  if (!fs::is_directory(path)) {
    throw Error::usage("--resume_from_checkpoint {}: is no folder. {}", wish, what_is_in(output));
  }
  if (!fs::exists(path / kManifestFile) && !list_checkpoints(path).empty()) {
    throw Error::usage("--resume_from_checkpoint {}: is no checkpoint but a folder of them. Name one. {}", wish,
                       what_is_in(path));
  }
  const std::vector<std::string> problems = problems_of(path, Verify::Sizes);
  if (problems.empty()) return path;
  throw Error::data("--resume_from_checkpoint {}: is not complete:{}\nResume from another one. {}", wish,
                    listed(problems), what_is_in(output));
}

std::vector<int64_t> checkpoints_to_remove(std::span<const int64_t> updates, std::optional<int64_t> limit,
                                           std::span<const int64_t> keep) {
  if (!limit || *limit <= 0 || updates.empty()) return {};
  std::vector<int64_t> ascending(updates.begin(), updates.end());
  std::sort(ascending.begin(), ascending.end());
  auto excess = static_cast<int64_t>(ascending.size()) - *limit;
  std::vector<int64_t> removed;
  for (const int64_t update : ascending) {
    if (excess <= 0) break;
    if (update == ascending.back() || std::find(keep.begin(), keep.end(), update) != keep.end()) continue;
    removed.push_back(update);
    --excess;
  }
  return removed;
}

fs::path put_aside(Disk& disk, const fs::path& checkpoint) {
  const auto update = update_of(checkpoint.filename().string());
  LS_CHECK(update.has_value(), "{} is not the name of a checkpoint", checkpoint.string());
  const fs::path aside = checkpoint.parent_path() / removing_name(*update);
  remove_tree(disk, aside);
  if (disk.rename(checkpoint, aside) != 0) fail_disk(checkpoint, "rename it before it is removed", errno);
  return aside;
}

void remove_leftovers(Disk& disk, const fs::path& output) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator it(output, code), end; !code && it != end; it.increment(code)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with('.')) continue;
    for (const std::string_view ending : {kPartial, kRemoving, kProbe}) {
      const std::string_view inner = std::string_view(name).substr(1, name.size() - 1);
      if (inner.ends_with(ending) && update_of(inner.substr(0, inner.size() - ending.size()))) found.push_back(it->path());
    }
  }
  for (const fs::path& path : found) remove_tree(disk, path);
}

std::optional<fs::path> put_in_place(Disk& disk, const fs::path& partial, const fs::path& checkpoint) {
  if (!fs::exists(fs::symlink_status(checkpoint))) {
    if (disk.rename(partial, checkpoint) != 0) fail_disk(checkpoint, "rename the finished checkpoint to", errno);
    return std::nullopt;
  }
  if (disk.exchange(partial, checkpoint) == 0) return partial;  // which holds the older one now
  if (errno != EINVAL && errno != ENOSYS) fail_disk(checkpoint, "exchange with the finished checkpoint", errno);
  // Some network file systems cannot exchange: for a moment nothing is there.
  fs::path aside = put_aside(disk, checkpoint);
  if (disk.rename(partial, checkpoint) != 0) fail_disk(checkpoint, "rename the finished checkpoint to", errno);
  return aside;
}

}  // namespace lockstep::checkpoint
