#pragma once

#include "lockstep/checkpoint/disk.h"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <unistd.h>

namespace lockstep::checkpoint {

/// The real calls, counted from 1, but for one of them. fsync is left out: a process that is killed loses nothing by it.
class FaultyDisk : public Disk {
 public:
  enum class Fault {
    None,
    Kill,        ///< SIGKILL in place of the call
    KillHalfway, ///< SIGKILL after the first half of what a write was to write
    Fail,        ///< the call returns -1
  };
  FaultyDisk(Fault fault, int call, int code = ENOSPC) : fault_(fault), call_(call), code_(code) {}

  int num_calls() const { return calls_; }
  /// "write <path>", "sync <path>" ... in the order of the calls.
  const std::vector<std::string>& trace() const { return trace_; }

  int make_folder(const fs::path& path) override { return next("mkdir " + path.string()) ? Disk::make_folder(path) : -1; }
  int open_file(const fs::path& path) override {
    if (!next("open " + path.string())) return -1;
    const int fd = Disk::open_file(path);
    const std::lock_guard lock(mutex_);
    names_[fd] = path.string();
    return fd;
  }
  ssize_t write_at(int fd, const std::byte* data, size_t size, int64_t offset) override {
    if (!next("write " + name_of(fd), [&] { Disk::write_at(fd, data, size / 2, offset); })) return -1;
    return Disk::write_at(fd, data, size, offset);
  }
  int sync(int fd) override { return next("sync " + name_of(fd)) ? 0 : -1; }
  int close_file(int fd) override {
    const bool well = next("close " + name_of(fd));
    return Disk::close_file(fd) == 0 && well ? 0 : -1;
  }
  int sync_folder(const fs::path& path) override { return next("sync " + path.string()) ? 0 : -1; }
  int rename(const fs::path& from, const fs::path& to) override {
    return next("rename " + to.string()) ? Disk::rename(from, to) : -1;
  }
  int exchange(const fs::path& one, const fs::path& other) override {
    return next("exchange " + other.string()) ? Disk::exchange(one, other) : -1;
  }
  int remove(const fs::path& path) override { return next("remove " + path.string()) ? Disk::remove(path) : -1; }

 private:
  /// False: the call is to fail, errno is set.
  bool next(std::string what, const std::function<void()>& half = [] {}) {
    const std::lock_guard lock(mutex_);
    trace_.push_back(std::move(what));
    if (++calls_ != call_ || fault_ == Fault::None) return true;
    if (fault_ == Fault::KillHalfway) half();
    if (fault_ != Fault::Fail) ::kill(::getpid(), SIGKILL);
    errno = code_;
    return false;
  }
  std::string name_of(int fd) {
    const std::lock_guard lock(mutex_);
    return names_[fd];
  }

  const Fault fault_;
  const int call_, code_;
  std::mutex mutex_;  ///< guards what follows
  int calls_ = 0;
  std::vector<std::string> trace_;
  std::map<int, std::string> names_;
};

/// A disk that stops in the call whose turn it is, until it is let go.
class HangingDisk : public Disk {
 public:
  enum class Where { Write, Sync };
  explicit HangingDisk(Where where) : where_(where) {}

  ssize_t write_at(int fd, const std::byte* data, size_t size, int64_t offset) override {
    if (where_ == Where::Write) hang();
    return Disk::write_at(fd, data, size, offset);
  }
  int sync(int /*fd*/) override {
    if (where_ == Where::Sync) hang();
    return 0;
  }
  /// Calls hang from now on.
  void hold() { set(true); }
  void let_go() { set(false); }

 private:
  void set(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void hang() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_; });
  }

  const Where where_;
  std::mutex mutex_;  ///< guards held_
  std::condition_variable changed_;
  bool held_ = false;
};

}  // namespace lockstep::checkpoint
