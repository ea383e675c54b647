#include "lockstep/checkpoint/disk.h"

#include "lockstep/base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace lockstep::checkpoint {
namespace {

/// The device starts on what is written after so many bytes, so that the fsync at the end finds little left to do.
constexpr int64_t kWritebackBytes = int64_t{16} << 20;

std::string_view advice_for(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT: return "Free some space there, lower --save_total_limit, or choose an --output_dir elsewhere.";
    case EFBIG: return "Raise the limit on file sizes (ulimit -f).";
    case EACCES:
    case EPERM: return "Change its permissions, or choose an --output_dir that this user may write.";
    case EROFS: return "The file system is read-only; choose an --output_dir elsewhere.";
    case ENOENT: return "A part of the path is gone; was the folder removed or the disk unmounted?";
    case EMFILE:
    case ENFILE: return "Raise the limit on open files (ulimit -n).";
    default: return "Check the disk.";
  }
}

}  // namespace

int Disk::make_folder(const fs::path& path) { return ::mkdir(path.c_str(), 0777); }

int Disk::open_file(const fs::path& path) { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666); }

ssize_t Disk::write_at(int fd, const std::byte* data, size_t size, int64_t offset) {
  return ::pwrite(fd, data, size, offset);
}

int Disk::sync(int fd) { return ::fsync(fd); }

int Disk::close_file(int fd) { return ::close(fd); }

int Disk::sync_folder(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return -1;
  // Some file systems do not know fsync of a folder and say EINVAL; there is nothing more to do then.
  return ::fsync(fd.get()) != 0 && errno != EINVAL ? -1 : 0;
}

int Disk::rename(const fs::path& from, const fs::path& to) { return ::rename(from.c_str(), to.c_str()); }

int Disk::exchange(const fs::path& one, const fs::path& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
}

int Disk::remove(const fs::path& path) { return ::remove(path.c_str()); }

Disk& real_disk() {
  static Disk disk;
  return disk;
}

void fail_disk(const fs::path& path, std::string_view operation, int code) {
  throw Error::environment("{}: cannot {}: {}. {}", path.string(), operation, std::strerror(code), advice_for(code));
}

void make_folder(Disk& disk, const fs::path& path) {
  if (disk.make_folder(path) != 0 && errno != EEXIST) fail_disk(path, "create the folder", errno);
}

void sync_folder(Disk& disk, const fs::path& path) {
  if (disk.sync_folder(path) != 0) fail_disk(path, "fsync the folder", errno);
}

void remove_tree(Disk& disk, const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) {
    std::error_code code;
    std::vector<fs::path> inside;
    for (fs::directory_iterator it(path, code), end; !code && it != end; it.increment(code)) inside.push_back(it->path());
    for (const fs::path& entry : inside) remove_tree(disk, entry);
  }
  if (disk.remove(path) != 0 && errno != ENOENT) fail_disk(path, "remove it", errno);
}

PlacedFile::PlacedFile(Disk& disk, fs::path path) : disk_(disk), path_(std::move(path)), fd_(disk.open_file(path_)) {
  if (fd_ < 0) fail_disk(path_, "create the file", errno);
}

PlacedFile::~PlacedFile() {
  if (fd_ >= 0) ::close(fd_);
}

void PlacedFile::write(std::span<const std::byte> bytes, int64_t offset) {
  if (offset != end_) begin_ = offset;
  while (!bytes.empty()) {
    const ssize_t written = disk_.write_at(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_disk(path_, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  end_ = offset;
  if (end_ - begin_ >= kWritebackBytes) {
    // Only a hint: where it is refused, the fsync takes longer.
    ::sync_file_range(fd_, begin_, end_ - begin_, SYNC_FILE_RANGE_WRITE);
    begin_ = end_;
  }
}

void PlacedFile::finish() {
  if (disk_.sync(fd_) != 0) fail_disk(path_, "fsync", errno);
  if (disk_.close_file(std::exchange(fd_, -1)) != 0) fail_disk(path_, "close", errno);
}

void write_whole_file(Disk& disk, const fs::path& path, std::string_view content) {
  PlacedFile file(disk, path);
  file.write(std::as_bytes(std::span(content.data(), content.size())), 0);
  file.finish();
}

}  // namespace lockstep::checkpoint
