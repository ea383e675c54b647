#include "lockstep/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::log {
namespace {

constexpr int kNotInitialised = -2;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::Debug: return spdlog::level::debug;
    case Level::Info: return spdlog::level::info;
    case Level::Warning: return spdlog::level::warn;
    case Level::Error: return spdlog::level::err;
    case Level::Off: break;
  }
  return spdlog::level::off;
}

/// Lines of the front program and of a program that has not called init() carry no rank.
std::string pattern_for(int world_rank) {
  const std::string rank = world_rank >= 0 ? fmt::format("r{:02} ", world_rank) : std::string();
  return "%H:%M:%S.%e %L " + rank + "%v";
}

/// A logger may be needed before init() and by many threads; it lives as long as the process, so that
/// destructors of static objects may still log.
spdlog::logger& logger() {
  static spdlog::logger& instance = *new spdlog::logger("lockstep", [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    sink->set_pattern(pattern_for(kNotInitialised));
    return sink;
  }());
  return instance;
}

}  // namespace

void init(int world_rank, Level level) {
  const bool is_replica = world_rank > 0;
  const Level effective = is_replica && level < Level::Warning ? Level::Warning : level;
  logger().set_pattern(pattern_for(world_rank));
  logger().set_level(to_spdlog(effective));
}

Level level_from_name(std::string_view text) {
  struct Entry {
    std::string_view name;
    Level level;
  };
  constexpr std::array kLevels{Entry{"debug", Level::Debug},     Entry{"info", Level::Info},
                               Entry{"passive", Level::Info},    Entry{"warning", Level::Warning},
                               Entry{"error", Level::Error},     Entry{"critical", Level::Error}};
  for (const Entry& entry : kLevels) {
    if (entry.name == text) return entry.level;
  }
  throw Error::usage("log level '{}' is not known. Use one of debug, info, warning, error, critical, passive.", text);
}

void write(Level level, std::string_view component, const std::string& text) {
  if (level == Level::Off) return;
  if (!logger().should_log(to_spdlog(level))) return;
  logger().log(to_spdlog(level), "{:<6} {}", component, text);
}

}  // namespace lockstep::log
