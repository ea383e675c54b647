#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::bench {

/// A connection that speaks bytes and blocks; throws std::runtime_error.
class RawConnection {
 public:
  explicit RawConnection(uint16_t port);
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;
  ~RawConnection();
  void send(std::string_view bytes);
  /// Exactly `size` bytes; valid until the next call.
  std::string_view receive(size_t size);

 private:
  int fd_;
  std::string buffer_;
};

}  // namespace lockstep::bench
