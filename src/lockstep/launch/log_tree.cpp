#include "lockstep/launch/log_tree.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/host_name.h"
#include "lockstep/launch/limits.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace lockstep::launch {

namespace {

constexpr const char* kTemporaryPrefix = "lockstep_logs_";

constexpr size_t kUniqueLetters = 8;

/// A fresh folder <parent>/<prefix><8 characters>, open to its owner alone. mkdtemp would give six.
fs::path make_unique_folder(const fs::path& parent, const std::string& prefix) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  std::array<unsigned char, kUniqueLetters> random = {};
  for (int attempt = 0;; ++attempt) {
    if (getentropy(random.data(), random.size()) != 0) {
      throw Error::environment("random numbers: {}", std::strerror(errno));
    }
    std::string name = prefix;
    for (const unsigned char byte : random) name += kLetters[byte % kLetters.size()];
    const fs::path folder = parent / name;
    if (mkdir(folder.c_str(), 0700) == 0) return folder;
    if (errno != EEXIST || attempt > 100) throw fs::filesystem_error("mkdir", folder, {errno, std::generic_category()});
  }
}

bool is_lack_of_space(const std::error_code& code) {
  return code == std::errc::no_space_on_device || code.value() == EDQUOT || code == std::errc::file_too_large ||
         code == std::errc::too_many_files_open;
}

/// A run id may hold anything; a folder's name may not.
std::string as_folder_name(std::string text) {
  std::replace(text.begin(), text.end(), '/', '_');
  if (text.size() > 200) text.resize(200);
  return text;
}

/// What cannot be written in the temporary folder, and why.
std::string temporary_problem(const std::string& message) {
  constexpr size_t kShown = 200;
  const char* given = std::getenv("TMPDIR");
  const std::string folder = given == nullptr ? "/tmp, not set" : given;
  return fmt::format("TMPDIR = '{}': {}. Set TMPDIR to a short path of a folder that exists and that you can write in, or "
                     "name one with --log_dir", folder.size() > kShown ? folder.substr(0, kShown) + "..." : folder, message);
}

bool holds_a_file(const fs::path& folder) {
  std::error_code problem;
  for (fs::recursive_directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem)) {
    if (!it->is_directory(problem)) return true;
  }
  return false;
}

/// This user's, and not just made: its owner may be about to lock it.
bool may_be_abandoned(const fs::path& folder) {
  constexpr time_t kYoung_s = 60;
  struct stat status = {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         time(nullptr) - status.st_mtime > kYoung_s;
}

/// Trees with a file in them stay: they may tell what happened.
void remove_abandoned_trees(const fs::path& parent) {
  const size_t name_size = std::string_view(kTemporaryPrefix).size() + kUniqueLetters;
  std::error_code problem;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(parent, problem), end; !problem && it != end; it.increment(problem)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kTemporaryPrefix) && name.size() == name_size && may_be_abandoned(it->path())) {
      found.push_back(it->path());
    }
  }
  for (const fs::path& folder : found) {
    try {
      const FolderLock lock(folder);
      if (lock.outcome() == FolderLock::Outcome::Locked && !holds_a_file(folder)) fs::remove_all(folder, problem);
    } catch (const Error&) {
      // Gone meanwhile, or closed to us. Cleaning up after others must not stop a run.
    }
  }
}

/// Nothing where no descriptor is left for it: a launcher that starts more than a minute later may then take the tree for
/// abandoned as long as it is empty.
std::optional<FolderLock> lock_of(const fs::path& folder) {
  try {
    return FolderLock(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void require_short_path(const fs::path& attempt) {
  if ((attempt / "9999" / "stdout.log").string().size() < PATH_MAX) return;
  throw fs::filesystem_error("log files", attempt, std::make_error_code(std::errc::filename_too_long));
}

}  // namespace

LogFile::LogFile(fs::path path) : path_(std::move(path)) {
  fd_ = UniqueFd(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (fd_.get() < 0) problem_ = fmt::format("{}: {}", path_.string(), std::strerror(errno));
}

std::string LogFile::write(std::string_view bytes) {
  while (fd_.get() >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      problem_ = fmt::format("{}: {}", path_.string(), std::strerror(errno));
      fd_.reset();
    }
  }
  return std::exchange(problem_, {});
}

void LastLines::feed(std::string_view bytes) {
  if (bytes.size() > kBytes) bytes.remove_prefix(bytes.size() - kBytes);
  kept_ += bytes;
  if (kept_.size() > 4 * kBytes) kept_.erase(0, kept_.size() - kBytes);
}

std::string LastLines::text() const {
  std::string_view text = kept_;
  if (text.size() > kBytes) text.remove_prefix(text.size() - kBytes);
  size_t start = text.size();
  for (size_t lines = 0; lines < kLines && start > 0; ++lines) {
    const size_t newline = start < 2 ? std::string_view::npos : text.rfind('\n', start - 2);
    start = newline == std::string_view::npos ? 0 : newline + 1;
  }
  return std::string(text.substr(start));
}

LogTree::LogTree(const RunSpec& spec, Console& console) : spec_(spec), console_(console) {}

void LogTree::begin_attempt(const Placement& placement) {
  attempt_.reset();
  sources_.clear();
  filtered_ = {};
  if (!is_null_device(spec_.output)) {
    try {
      make_folders(placement.restart_count);
    } catch (const fs::filesystem_error& problem) {
      const std::string text = fmt::format("{}: {}", problem.path1().string(), problem.code().message());
      if (spec_.output.log_dir && !is_lack_of_space(problem.code())) {
        throw Error::environment("the log folder cannot be made: {}. Name another one with --log_dir, or --log_dir "
                                 "/dev/null for none.", text);
      }
      attempt_.reset();
      const bool is_place_to_blame = !spec_.output.log_dir && problem.code() != std::errc::too_many_files_open;
      warn(is_place_to_blame ? temporary_problem(problem.code().message()) : text);
    }
  }
  const std::string host = own_host_name();
  std::vector<std::string> prefixes;
  for (int worker = 0; worker < spec_.num_workers; ++worker) {
    const int rank = placement.rank_base + worker;
    prefixes.push_back(line_prefix(spec_.output.prefix_template, spec_.role, rank, worker, host));
    for (const Stream stream : {Stream::Out, Stream::Err}) {
      Source& added = sources_.emplace_back();
      added.route = route_of(worker, stream);
      added.prefix = prefixes.back();
      if (!attempt_ || !added.route.to_file) continue;
      added.file = LogFile(*attempt_ / std::to_string(worker) / (stream == Stream::Out ? "stdout.log" : "stderr.log"));
    }
  }
  console_.begin_round(spec_.num_workers, std::move(prefixes));
  if (attempt_ && !spec_.output.stdout_filters.empty()) filtered_[0] = LogFile(*attempt_ / "filtered_stdout.log");
  if (attempt_ && !spec_.output.stderr_filters.empty()) filtered_[1] = LogFile(*attempt_ / "filtered_stderr.log");
}

void LogTree::make_folders(int attempt) {
  if (!run_folder_) {
    if (spec_.output.log_dir) {
      fs::create_directories(*spec_.output.log_dir);
    } else {
      const fs::path parent = fs::temp_directory_path();
      remove_abandoned_trees(parent);
      temporary_root_ = make_unique_folder(parent, kTemporaryPrefix);
      root_lock_ = lock_of(*temporary_root_);
    }
    run_folder_ = make_unique_folder(temporary_root_ ? *temporary_root_ : fs::absolute(*spec_.output.log_dir),
                                     as_folder_name(spec_.run_id) + "_");
  }
  attempt_ = *run_folder_ / fmt::format("attempt_{}", attempt);
  require_short_path(*attempt_);
  fs::remove_all(*attempt_);
  fs::create_directories(*attempt_);
  for (int worker = 0; worker < spec_.num_workers; ++worker) fs::create_directory(*attempt_ / std::to_string(worker));
}

std::string LogTree::error_file(int local_rank) const {
  return attempt_ ? (*attempt_ / std::to_string(local_rank) / "error.json").string() : std::string();
}

void LogTree::feed(int worker, Stream stream, std::string_view bytes) {
  Source& from = source(worker, stream);
  write(from.file, bytes);
  if (stream == Stream::Err) from.last_lines.feed(bytes);
  if (!from.route.to_console) return;
  console_.feed(worker, stream, bytes);
  if (!filters(stream).empty()) filter(from, stream, bytes);
}

void LogTree::finish(int worker, Stream stream) {
  Source& from = source(worker, stream);
  if (!from.route.to_console) return;
  console_.finish(worker, stream);
  if (!from.partial.empty()) filter(from, stream, "\n");
}

void LogTree::filter(Source& from, Stream stream, std::string_view bytes) {
  std::optional<LogFile>& file = filtered_[static_cast<size_t>(stream)];
  if (!file) return;
  from.partial += bytes;
  const size_t end = from.partial.rfind('\n');
  if (end == std::string::npos) {
    if (from.partial.size() <= LineMultiplexer::kMaxLineBytes) return;
    from.partial += '\n';
    return filter(from, stream, {});
  }
  std::string wanted;
  for (size_t start = 0; start <= end;) {
    const size_t newline = from.partial.find('\n', start);
    const std::string_view line = std::string_view(from.partial).substr(start, newline + 1 - start);
    const auto& words = filters(stream);
    const auto is_in_line = [&](const std::string& word) { return line.find(word) != std::string_view::npos; };
    if (std::any_of(words.begin(), words.end(), is_in_line)) wanted.append(from.prefix).append(line);
    start = newline + 1;
  }
  from.partial.erase(0, end + 1);
  write(*file, wanted);
}

void LogTree::write(LogFile& file, std::string_view bytes) {
  if (const std::string problem = file.write(bytes); !problem.empty()) warn(problem);
}

void LogTree::warn(const std::string& problem) {
  if (std::exchange(warned_, true)) return;
  const std::string advice = limit_advice(problem, current_limits());
  console_.say(fmt::format("log files cannot be written ({}{}): the run goes on, and what its workers write is missing "
                           "there from now on", problem, advice.empty() ? "" : "." + advice));
}

std::string LogTree::last_lines(int local_rank) const {
  const auto index = 2 * static_cast<size_t>(local_rank) + static_cast<size_t>(Stream::Err);
  return index < sources_.size() ? sources_[index].last_lines.text() : std::string();
}

void LogTree::close(bool succeeded) {
  sources_.clear();
  filtered_ = {};
  const std::optional<fs::path> root = std::exchange(temporary_root_, std::nullopt);
  root_lock_.reset();
  if (!root || (!succeeded && holds_a_file(*root))) return;
  std::error_code problem;
  fs::remove_all(*root, problem);
  run_folder_.reset();
}

}  // namespace lockstep::launch
