#include "lockstep/launch/torch_error.h"

#include "lockstep/launch/failure_report.h"

#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

namespace lockstep::launch {

namespace {

constexpr size_t kWidest = 60;

/// json.dump() calls itself for every level: a file of brackets must not take the launcher with it.
constexpr int kDeepest = 100;

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text, [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kDeepest) throw Error::data("it is nested more than {} deep", kDeepest);
    return true;
  });
}

/// A number, or the same as text: the decorator writes text, other programs a number. 0 for what is no time from 1970
/// to the end of 9999.
int64_t timestamp_in(const nlohmann::json& object) {
  constexpr double kLast = 253'402'300'799;
  const auto found = object.find("timestamp");
  if (found == object.end()) return 0;
  double seconds = 0;
  if (found->is_number()) seconds = found->get<double>();
  if (found->is_string()) seconds = std::strtod(found->get_ref<const std::string&>().c_str(), nullptr);
  return seconds >= 0 && seconds <= kLast ? static_cast<int64_t>(seconds) : 0;
}

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The file says whole seconds; its own time is finer where the two agree.
double fine_time(const std::string& path, int64_t timestamp) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return static_cast<double>(timestamp);
  const timespec& time = status.st_mtim;
  const double changed = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  const bool agree = timestamp == 0 || std::abs(changed - static_cast<double>(timestamp)) < 2;
  return agree ? changed : static_cast<double>(timestamp) + 0.5;
}

/// 2026-11-30_07:31:02
std::string local_time(const WorkerEnd& end) {
  const bool has_file = end.torch_error && end.torch_error->timestamp > 0;
  const std::time_t when = has_file ? end.torch_error->timestamp : static_cast<std::time_t>(end.time);
  std::tm parts = {};
  localtime_r(&when, &parts);
  return fmt::format("{:04}-{:02}-{:02}_{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string explanation(const WorkerEnd& end) {
  if (end.torch_error && !end.torch_error->traceback.empty()) {
    return replace_all(end.torch_error->traceback, "\n", "\n  ");
  }
  if (end.torch_error && !end.torch_error->message.empty()) return end.torch_error->message;
  if (end.signal != 0) {
    return fmt::format("Signal {} ({}) received by PID {}", end.signal, signal_name(end.signal), end.pid);
  }
  return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

std::string block(size_t index, const std::string& host, const WorkerEnd& end) {
  // torch puts a blank before an optional part that begins with one itself.
  const std::string signal = end.signal != 0 ? fmt::format(" ({})", signal_name(end.signal)) : std::string();
  return fmt::format(
      "[{}]:\n  time      : {}\n  host      : {}\n  rank      : {} (local_rank: {})\n  exitcode  : {} (pid: {}) {}\n"
      "  error_file: {}\n  traceback : {}", index, local_time(end), host, end.world_rank, end.local_rank,
      torch_exit_code(end), end.pid, signal, end.torch_error ? end.torch_error->path : "<N/A>", explanation(end));
}

size_t widest_line(std::string_view text) {
  size_t widest = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    widest = std::max(widest, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return widest;
}

}  // namespace

int torch_exit_code(const WorkerEnd& end) { return end.signal != 0 ? -end.signal : end.exit_status; }

TorchError parse_torch_error(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  TorchError error;
  const nlohmann::json& message = json.at("message");
  if (message.is_string()) {
    error.message = message.get<std::string>();
    error.timestamp = timestamp_in(json);
  } else {
    error.message = text_in(message, "message");
    const auto extra = message.find("extraInfo");
    if (extra != message.end()) {
      error.traceback = text_in(*extra, "py_callstack");
      error.timestamp = timestamp_in(*extra);
    }
  }
  error.time = static_cast<double>(error.timestamp);
  return error;
}

std::string with_exit_code(std::string_view text, int exit_code) {
  nlohmann::json json = parse_json(text);
  if (json.contains("message") && json["message"].is_object()) json["message"]["errorCode"] = exit_code;
  return json.dump();
}

std::optional<TorchError> read_torch_error(const std::string& path) {
  std::error_code problem;
  if (path.empty() || !fs::is_regular_file(path, problem)) return std::nullopt;
  try {
    TorchError error = parse_torch_error(read_file(path));
    error.path = path;
    error.time = fine_time(path, error.timestamp);
    return error;
  } catch (const std::exception& error) {
    return TorchError{.path = path, .message = fmt::format("{} cannot be understood: {}", path, error.what()),
                      .time = fine_time(path, 0)};
  }
}

std::string hand_up_torch_error(const TorchError& error, int exit_code, const fs::path& target) {
  try {
    write_file_atomically(target, with_exit_code(read_file(error.path), exit_code));
    return {};
  } catch (const std::exception& problem) {
    return fmt::format("the error record {} could not be handed on to {}: {}", error.path, target.string(),
                       problem.what());
  }
}

std::string torchrun_summary(const std::string& entry_name, const std::string& host, std::span<const WorkerEnd> ends,
                             const Cause& cause) {
  const std::string title = entry_name + " FAILED";
  size_t width = title.size();
  size_t index = 0;
  std::string root;
  std::string others;
  for (const WorkerEnd& end : ends) {
    if (classify(end) == EndClass::Orderly) continue;
    const std::string text = block(index++, host, end);
    width = std::max(width, widest_line(text));
    if (end.world_rank == cause.world_rank) root = text;
    else others += (others.empty() ? "" : "\n") + text;
  }
  width = std::min(width, kWidest);
  const std::string line(width, '-');
  const std::string border(width, '=');
  return fmt::format("{}\n{}\n{}\nFailures:\n{}\n{}\nRoot Cause (first observed failure):\n{}\n{}\n", border, title,
                     line, others.empty() ? "  <NO_OTHER_FAILURES>" : others, line, root, border);
}

}  // namespace lockstep::launch
