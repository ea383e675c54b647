#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

/// One line to stderr: `12:30:41.120 I r03 train  text`. Info is printed by world rank 0 only, warnings and errors
/// by all. Thread-safe. The library behind it (spdlog) is not visible here.
namespace lockstep::log {

enum class Level { Debug, Info, Warning, Error, Off };

/// Call once at start. `world_rank` < 0: a program without a rank (the front program). Level of the replicas is
/// raised to Warning when world_rank > 0.
void init(int world_rank, Level level);
/// "debug", "info", "warning", "error", "critical" (= error) and "passive" (= info), as transformers names them.
/// Throws Error{Usage} for another word.
Level level_from_name(std::string_view text);

void write(Level level, std::string_view component, const std::string& text);

template <class... Args>
void debug(std::string_view component, fmt::format_string<Args...> text, Args&&... args) {
  write(Level::Debug, component, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void info(std::string_view component, fmt::format_string<Args...> text, Args&&... args) {
  write(Level::Info, component, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void warn(std::string_view component, fmt::format_string<Args...> text, Args&&... args) {
  write(Level::Warning, component, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void error(std::string_view component, fmt::format_string<Args...> text, Args&&... args) {
  write(Level::Error, component, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lockstep::log
