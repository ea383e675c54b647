#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Who must act. Each kind has one exit code, so that scripts can tell "fix your YAML" from "a host died".
enum class ErrorKind {
  Usage,        ///< 2: the command line, a configuration file or an environment variable
  Data,         ///< 3: the user's model or data
  Environment,  ///< 4: disk, memory, libraries, permissions
  Peer,         ///< 5: another process or host died
  Timeout,      ///< 6: a wait ran past its deadline
  NonFinite,    ///< 7: a loss or gradient became NaN or infinite
  OtherBits,    ///< 8: a replay does not give what the run logged
  Internal,     ///< 70: a bug of lockstep
  Resumable,    ///< 75: stopped on request with everything saved
};

int exit_code(ErrorKind kind);
std::string_view name(ErrorKind kind);
/// The inverse of name(); Internal for an unknown text.
ErrorKind error_kind_from_name(std::string_view text);

/// The one exception of the project. The message says what happened, which value from where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }
  int exit_code() const { return lockstep::exit_code(kind_); }

  template <class... Args>
  static Error usage(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::Usage, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class... Args>
  static Error data(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::Data, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class... Args>
  static Error environment(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::Environment, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class... Args>
  static Error peer(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::Peer, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class... Args>
  static Error timeout(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::Timeout, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class... Args>
  static Error non_finite(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::NonFinite, fmt::format(text, std::forward<Args>(args)...)};
  }
  template <class... Args>
  static Error internal(fmt::format_string<Args...> text, Args&&... args) {
    return {ErrorKind::Internal, fmt::format(text, std::forward<Args>(args)...)};
  }

 private:
  ErrorKind kind_;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

/// For our own bugs only; user data never meets it. Usage: LS_CHECK(a == b, "a = {}, b = {}", a, b).
#define LS_CHECK(condition, ...)                                                                    \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      ::lockstep::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

}  // namespace lockstep
