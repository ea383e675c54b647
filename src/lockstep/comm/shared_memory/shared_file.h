#pragma once

#include "lockstep/base/files.h"

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::comm {

/// Memory without a name (memfd): it goes with the last process that has it, however that one ends, and is bounded by the
/// process's memory, not by the size of /dev/shm. Zeros at first; begins at a multiple of a huge page. Move-only.
class SharedFile {
 public:
  enum class Take {
    Now,      ///< all pages, so that no later write can fail
    AtWrite,  ///< each at its first write, as memory of one's own
  };
  /// Throws Error{Environment} when the system refuses.
  static SharedFile create(size_t bytes, Take take);
  /// What open() needs in another process.
  std::string address() const;
  /// Throws Error{Environment} when it cannot be reached, as from another container.
  static SharedFile open(const std::string& address, size_t bytes);
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&&) = delete;
  ~SharedFile();

  std::span<std::byte> memory() const { return {memory_, bytes_}; }
  int descriptor() const { return file_.get(); }

 private:
  SharedFile(UniqueFd file, size_t bytes);
  UniqueFd file_;
  size_t bytes_;
  std::byte* memory_ = nullptr;
};

}  // namespace lockstep::comm
