// Preloaded into a program: adds the seconds in the file $CLOCK_OFFSET_FILE, once it is there, to the wall clock that the
// program reads. The monotonic clock stays, as it does when a real clock is stepped.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace {

time_t offset_s() {
  static const char* const path = std::getenv("CLOCK_OFFSET_FILE");
  if (path == nullptr) return 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[32] = {};
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  return got > 0 ? std::atol(text) : 0;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* when) noexcept {
  static const auto real = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, when);
  if (result == 0 && clock == CLOCK_REALTIME) when->tv_sec += offset_s();
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* __restrict when, void* __restrict zone) noexcept {
  static const auto real = next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = real(when, zone);
  if (result == 0) when->tv_sec += offset_s();
  return result;
}

__attribute__((visibility("default"))) time_t time(time_t* when) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (when != nullptr) *when = now.tv_sec;
  return now.tv_sec;
}
}
