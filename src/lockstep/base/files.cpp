#include "lockstep/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string_view remedy_for(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT: return "Free some space there or choose a folder on another file system.";
    case EFBIG: return "Raise the limit on file sizes (ulimit -f) or choose another file system.";
    case EACCES:
    case EPERM: return "Change its permissions or choose a path that this user may use.";
    case EROFS: return "The file system is read-only; choose another folder.";
    case ENOENT: return "Check the path: a part of it does not exist, or nothing can be created there.";
    case ENOTDIR: return "A part of the path is a file, not a folder; check the path.";
    case EISDIR: return "It is a folder where a file is needed; check the path.";
    case EMFILE:
    case ENFILE: return "Raise the limit on open files (ulimit -n).";
    case ENOMEM: return "Free some memory.";
    default: return "Check the disk and the path.";
  }
}

Error system_error(ErrorKind kind, const fs::path& path, std::string_view operation, int code) {
  return {kind, fmt::format("{}: cannot {}: {}. {}", path.string(), operation, std::strerror(code), remedy_for(code))};
}

[[noreturn]] void fail_write(const fs::path& path, std::string_view operation, int code = errno) {
  throw system_error(ErrorKind::Environment, path, operation, code);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// A link is followed, so that what it names is replaced and the link stays; "out/" is taken as "out".
fs::path resolve_target(fs::path path) {
  if (!path.has_filename()) path = path.parent_path();
  std::error_code code;
  if (!fs::is_symlink(fs::symlink_status(path, code))) return path;
  const fs::path resolved = fs::canonical(path, code);
  return code ? path : resolved;
}

/// A name beside `target`, on the same file system, that no other process uses.
fs::path name_aside(const fs::path& target, std::string_view word) {
  uint32_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) {
    random = static_cast<uint32_t>(std::hash<std::string>{}(target.string()));
  }
  return folder_of(target) / fmt::format(".{}.{}-{}-{:08x}", target.filename().string(), word, getpid(), random);
}

void write_all(int fd, const fs::path& path, const std::byte* data, size_t size) {
  // Linux writes at most 2 GiB - 4 KiB at a time.
  constexpr size_t kLargestWrite = size_t{1} << 30;
  while (size > 0) {
    const ssize_t written = ::write(fd, data, std::min(size, kLargestWrite));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_write(path, "write");
    }
    data += written;
    size -= static_cast<size_t>(written);
  }
}

/// For files and folders alike.
void fsync_path(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail_write(path, "open for fsync");
  // Some file systems do not know fsync of a folder and say EINVAL; there is nothing more to do then.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_write(path, "fsync");
}

void remove_quietly(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// For file systems without RENAME_EXCHANGE: between the two renames nothing is at `target`; a failure of the second
/// puts the old folder back.
void replace_in_two_steps(const fs::path& fresh, const fs::path& target) {
  const fs::path old = name_aside(target, "old");
  if (::rename(target.c_str(), old.c_str()) != 0) fail_write(target, "rename aside");
  if (::rename(fresh.c_str(), target.c_str()) != 0) {
    const int code = errno;
    if (::rename(old.c_str(), target.c_str()) != 0) {
      throw Error::environment("{}: cannot be replaced: {}; its former content now lies in {}. Move it back by hand.",
                               target.string(), std::strerror(code), old.string());
    }
    fail_write(target, "replace", code);
  }
  remove_quietly(old);
}

/// After it `target` is what `fresh` was; what was at `target` before is gone.
void put_in_place(const fs::path& fresh, const fs::path& target) {
  // rename() replaces an empty folder.
  if (::rename(fresh.c_str(), target.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) fail_write(target, "rename the finished folder to");
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    remove_quietly(fresh);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) fail_write(target, "exchange");
  replace_in_two_steps(fresh, target);
}

void create_folders(const fs::path& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) fail_write(folder, "create the folder", code.value());
}

}  // namespace

std::string read_file(const fs::path& path, ErrorKind kind) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw system_error(kind, path, "open", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error(kind, path, "stat", errno);
  // The size is only a first guess: files of /proc say 0, and a file may grow.
  std::string content(static_cast<size_t>(status.st_size) + 1, '\0');
  size_t filled = 0;
  while (true) {
    const ssize_t got = ::read(fd.get(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(kind, path, "read", errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    if (filled == content.size()) content.resize(content.size() * 2 + 4096);
  }
  content.resize(filled);
  return content;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

AtomicFile::AtomicFile(fs::path path) : path_(resolve_target(std::move(path))), temporary_(name_aside(path_, "tmp")) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_write(path_, "create a file beside it for writing");
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  LS_CHECK(fd_ >= 0, "write after commit: {}", path_.string());
  write_all(fd_, path_, bytes.data(), bytes.size());
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::commit() {
  LS_CHECK(fd_ >= 0, "second commit: {}", path_.string());
  if (::fsync(fd_) != 0) fail_write(path_, "fsync");
  // Network file systems report a full disk or quota at close.
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail_write(path_, "close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_write(path_, "rename the finished file to");
  committed_ = true;
  fsync_path(folder_of(path_));
}

AtomicFolder::AtomicFolder(fs::path target)
    : target_(resolve_target(std::move(target))), temporary_(name_aside(target_, "tmp")) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(target_, code);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw Error::environment("{}: exists and is not a folder. Remove it or choose another path.", target_.string());
  }
  create_folders(folder_of(target_));
  if (::mkdir(temporary_.c_str(), 0777) != 0) fail_write(target_, "create a folder beside it for writing");
  // It takes an older folder's place, and so its group and mode: what was private stays so. As far as the system lets us.
  struct stat older {};
  if (::stat(target_.c_str(), &older) == 0) {
    if (::chown(temporary_.c_str(), static_cast<uid_t>(-1), older.st_gid) != 0) errno = 0;
    if (::chmod(temporary_.c_str(), older.st_mode & 07777) != 0) errno = 0;
  }
}

AtomicFolder::~AtomicFolder() {
  if (!committed_) remove_quietly(temporary_);
}

void AtomicFolder::commit() {
  LS_CHECK(!committed_, "second commit: {}", target_.string());
  fsync_folder(temporary_);
  put_in_place(temporary_, target_);
  committed_ = true;
  fsync_path(folder_of(target_));
}

void require_writable_folder(const fs::path& folder) {
  create_folders(folder);
  const fs::path probe = name_aside(folder / "probe", "tmp");
  const UniqueFd fd(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) fail_write(folder, "create a file in the folder");
  ::unlink(probe.c_str());
}

void fsync_folder(const fs::path& folder) {
  std::error_code code;
  for (auto it = fs::recursive_directory_iterator(folder, code); !code && it != fs::recursive_directory_iterator();
       it.increment(code)) {
    if (it->is_symlink()) continue;
    if (it->is_regular_file() || it->is_directory()) fsync_path(it->path());
  }
  if (code) fail_write(folder, "list for fsync", code.value());
  fsync_path(folder);
}

void remove_unfinished(const fs::path& folder, std::span<const pid_t> pids, std::string_view target) noexcept {
  std::error_code code;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    const bool abandoned = std::any_of(pids.begin(), pids.end(), [&](pid_t pid) {
      return name.find(fmt::format(".tmp-{}-", pid)) != std::string::npos;
    });
    if (abandoned && name.starts_with(fmt::format(".{}", target))) found.push_back(it->path());
  }
  for (const fs::path& path : found) remove_quietly(path);
}

std::string expand_user(std::string path) {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return path;
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, home);
  return path;
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw system_error(ErrorKind::Data, path, "open", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error(ErrorKind::Data, path, "stat", errno);
  if (S_ISDIR(status.st_mode)) throw system_error(ErrorKind::Data, path, "map", EISDIR);
  if (status.st_size == 0) return;  // mmap refuses a length of zero; the span is empty
  const size_t size = static_cast<size_t>(status.st_size);
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) throw system_error(ErrorKind::Data, path, "map", errno);
  data_ = static_cast<const std::byte*>(address);
  size_ = size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

namespace {

/// Whoever holds a flock on the file behind `fd`, by /proc/locks; 0 when it does not say.
pid_t flock_holder(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return 0;
  const std::string inode =
      fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream file("/proc/locks");
  std::string line;
  // 1: FLOCK  ADVISORY  WRITE 708 08:01:1234 0 EOF
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string number, kind, advisory, access, where;
    pid_t pid = 0;
    words >> number >> kind >> advisory >> access >> pid >> where;
    if (kind == "FLOCK" && where == inode) return std::max(pid, 0);
  }
  return 0;
}

constexpr size_t kMkdtempLetters = 6;
constexpr size_t kLongestNameWithin = 100;  ///< of what is put into a temporary folder
constexpr size_t kShownPath = 200;

fs::path make_temp_folder(std::string_view prefix, const fs::path& parent) {
  std::error_code code;
  const fs::path folder = parent.empty() ? fs::temp_directory_path(code) : parent;
  std::string pattern = (folder / fmt::format("{}XXXXXX", prefix)).string();
  // Too long to put files into it is as bad as too long for itself.
  if (!code && pattern.size() + kLongestNameWithin >= PATH_MAX) code = std::make_error_code(std::errc::filename_too_long);
  if (!code && ::mkdtemp(pattern.data()) == nullptr) code.assign(errno, std::generic_category());
  if (!code) return pattern;
  if (!parent.empty()) fail_write(folder, "create a temporary folder in it", code.value());
  const char* given = std::getenv("TMPDIR");
  const std::string text = given == nullptr ? folder.string() : given;
  throw Error::environment("TMPDIR = '{}'{}: no temporary folder can be made there: {}. Set TMPDIR to {}.",
                           text.size() > kShownPath ? text.substr(0, kShownPath) + "..." : text,
                           given == nullptr ? " (not set)" : "", code.message(),
                           code == std::errc::filename_too_long
                               ? "a shorter path"
                               : "a folder that exists, has space left and that you can write in");
}

bool is_older_than(const fs::path& path, int seconds) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         ::time(nullptr) - status.st_mtime > seconds;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_.get() < 0) fail_write(folder, "open to lock it");
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
    outcome_ = Outcome::Locked;
  } else if (errno == EWOULDBLOCK) {
    outcome_ = Outcome::HeldByOther;
    holder_ = flock_holder(fd_.get());
  }
}

namespace {

/// Of a folder that has just been made.
FolderLock lock_or_remove(const fs::path& path) {
  try {
    return FolderLock(path);
  } catch (const Error&) {
    ::rmdir(path.c_str());  // needs no descriptor, which may be what is lacking
    throw;
  }
}

/// One that cannot be opened, or that another process has removed meanwhile, must not keep the others.
void remove_unless_locked(const fs::path& path) {
  try {
    const FolderLock lock(path);
    if (lock.outcome() == FolderLock::Outcome::Locked) remove_quietly(path);
  } catch (const Error&) {
  }
}

}  // namespace

TempFolder::TempFolder(std::string_view prefix, const fs::path& parent)
    : path_(make_temp_folder(prefix, parent)), lock_(lock_or_remove(path_)) {}

TempFolder::~TempFolder() {
  remove_quietly(path_);
  std::error_code code;
  if (!fs::exists(path_, code)) return;
  { const FolderLock released = std::move(lock_); }  // its descriptor may be the one that is lacking
  remove_quietly(path_);
}

void TempFolder::remove_abandoned(std::string_view prefix, int min_age_s) noexcept {
  try {
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::temp_directory_path())) {
      const fs::path& path = entry.path();
      const std::string name = path.filename().string();
      const bool is_ours = name.starts_with(prefix) && name.size() == prefix.size() + kMkdtempLetters;
      if (is_ours && is_older_than(path, min_age_s)) found.push_back(path);
    }
    for (const fs::path& path : found) remove_unless_locked(path);
  } catch (const std::exception&) {
    // Cleaning up after others is a courtesy; it must not stop a run.
  }
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace lockstep
