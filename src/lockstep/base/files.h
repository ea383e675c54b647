#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "lockstep/base/error.h"

namespace lockstep {

namespace fs = std::filesystem;

/// The whole file. Throws Error{kind} with the path, the system's words and a remedy.
std::string read_file(const fs::path& path, ErrorKind kind = ErrorKind::Data);

/// Everything below that writes throws Error{Environment} with the path, the operation, the system's words and a
/// remedy. Whatever is written lies at first beside its target, as `.NAME.tmp-<pid>-<random>`: a process that is
/// killed may leave such a file or folder, never a part of the target. A target that is a symbolic link is followed.

/// Writes aside (same folder, which must exist), fsyncs, renames, fsyncs the folder: the file appears whole or not at
/// all, and replaces an older one in one step.
void write_file_atomically(const fs::path& path, std::string_view content);

/// The same for content that is produced in pieces; unbuffered, so hand over large pieces. Nothing is visible at
/// `path` before commit(); a destroyed, uncommitted writer removes its temporary file. Not thread-safe.
class AtomicFile {
 public:
  explicit AtomicFile(fs::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// fsync, rename, fsync of the folder.
  void commit();

 private:
  fs::path path_;
  fs::path temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

/// A folder that appears whole or not at all: fill `path()`, then commit(), which fsyncs all files and folders in it.
/// Missing parents of `target` are created. If `target` is an existing folder, commit() exchanges the two in one step
/// (renameat2 RENAME_EXCHANGE) and then removes the old one WITH ALL ITS CONTENT: a caller who takes a path from the
/// user makes sure first that what is there may go. On file systems without the exchange (some network ones) two
/// renames are used, with nothing at `target` for a moment. A destroyed, uncommitted one removes what was written.
class AtomicFolder {
 public:
  explicit AtomicFolder(fs::path target);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const fs::path& path() const { return temporary_; }
  void commit();

 private:
  fs::path target_;
  fs::path temporary_;
  bool committed_ = false;
};

/// Throws Error{Environment} unless files can be created in `folder` (created with its parents if missing).
void require_writable_folder(const fs::path& folder);

/// fsyncs every file and folder in `folder`, then itself.
void fsync_folder(const fs::path& folder);

/// Removes what processes that are gone left unfinished (see above) in `folder`: entries named `.NAME.tmp-<pid>-...`
/// with a pid of `pids` and, where `target` is given, a NAME that begins so (pids may repeat over hosts and containers).
/// Never throws.
void remove_unfinished(const fs::path& folder, std::span<const pid_t> pids, std::string_view target = {}) noexcept;

/// "~" and "~/..." with the user's home folder in place of the tilde, for values a shell did not expand
/// (--flag=~/x, YAML). Other paths, and all when HOME is not set, come back as they are.
std::string expand_user(std::string path);


/// A file mapped read-only. Move-only. Throws Error{Data}. A file that another process shortens while it is mapped
/// ends this one with SIGBUS, as mmap does.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};


/// A file descriptor that closes itself. Move-only.
class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset();

 private:
  int fd_;
};

/// Holds an existing folder for this process alone: flock on the folder itself, so no file is left behind and the lock
/// ends with the process however it ends. Not inherited by programs it starts. Move-only.
class FolderLock {
 public:
  enum class Outcome { Locked, HeldByOther, Unsupported };  ///< Unsupported: some network file systems

  explicit FolderLock(const fs::path& folder);
  Outcome outcome() const { return outcome_; }
  /// HeldByOther: who, or 0 when the system does not say.
  pid_t holder() const { return holder_; }

 private:
  UniqueFd fd_;
  Outcome outcome_ = Outcome::Unsupported;
  pid_t holder_ = 0;
};

/// A fresh folder under `parent` (default: the system's temporary folder), removed with its content on destruction.
/// It is locked while it is used, which tells remove_abandoned() that it is.
class TempFolder {
 public:
  explicit TempFolder(std::string_view prefix, const fs::path& parent = {});
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  const fs::path& path() const { return path_; }

  /// Removes this user's folders of that prefix whose process was killed before it could. Those younger than
  /// `min_age_s` stay, since their owner may be about to lock them. Never throws.
  static void remove_abandoned(std::string_view prefix, int min_age_s = 60) noexcept;

 private:
  fs::path path_;
  FolderLock lock_;
};

}  // namespace lockstep
