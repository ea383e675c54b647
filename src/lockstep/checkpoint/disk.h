#pragma once

#include "lockstep/base/files.h"

#include <cstddef>
#include <span>
#include <string_view>

#include <sys/types.h>

namespace lockstep::checkpoint {

/// The system calls by which a checkpoint is written and removed; each does what its name says and returns as the
/// call does (-1 and errno). A seam: a test makes the k-th of them fail, or ends the process there. Called from several
/// threads at once.
class Disk {
 public:
  virtual ~Disk() = default;
  virtual int make_folder(const fs::path& path);
  /// For writing; created where it is missing, never cut.
  virtual int open_file(const fs::path& path);
  virtual ssize_t write_at(int fd, const std::byte* data, size_t size, int64_t offset);
  virtual int sync(int fd);
  virtual int close_file(int fd);
  virtual int sync_folder(const fs::path& path);
  virtual int rename(const fs::path& from, const fs::path& to);
  /// renameat2 with RENAME_EXCHANGE.
  virtual int exchange(const fs::path& one, const fs::path& other);
  /// A file, a link or an empty folder.
  virtual int remove(const fs::path& path);
};

Disk& real_disk();

/// Throws Error{Environment}: "<path>: cannot <operation>: <the system's words>. <what to do>".
[[noreturn]] void fail_disk(const fs::path& path, std::string_view operation, int code);

void make_folder(Disk& disk, const fs::path& path);
void sync_folder(Disk& disk, const fs::path& path);
/// With everything in it; links are not followed. What is gone already is no error.
void remove_tree(Disk& disk, const fs::path& path);

/// An open file whose parts are written in any order, also by other processes at the same time. Not thread-safe.
class PlacedFile {
 public:
  PlacedFile(Disk& disk, fs::path path);
  PlacedFile(const PlacedFile&) = delete;
  PlacedFile& operator=(const PlacedFile&) = delete;
  ~PlacedFile();

  void write(std::span<const std::byte> bytes, int64_t offset);
  /// fsync and close; a network file system reports a full disk only here.
  void finish();

 private:
  Disk& disk_;
  fs::path path_;
  int fd_ = -1;
  int64_t begin_ = 0, end_ = 0;  ///< written, and not yet sent to the device
};

void write_whole_file(Disk& disk, const fs::path& path, std::string_view content);

}  // namespace lockstep::checkpoint
