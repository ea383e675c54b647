#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/torch_error.h"

#include <nlohmann/json.hpp>

#include <optional>

namespace {

using namespace lockstep;
using namespace lockstep::launch;

/// The refusals that both files' readers turn into words.
template <class Read>
auto unless_refused(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const nlohmann::json::exception&) {
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Data) throw;
  }
  return std::nullopt;
}

void check_reports(const WorkerEnd& end) {
  const std::vector<WorkerEnd> ends = {end};
  LS_CHECK(first_cause(ends).has_value(), "a failure without a cause");
  LS_CHECK(torchrun_summary("x.py", "n1", ends, *first_cause(ends)).ends_with("=\n"), "the summary is cut off");
  LS_CHECK(!failure_report(ends, first_cause(ends), 0).empty(), "a failure without a report");
}

void check_torch_error(std::string_view text) {
  const auto error = unless_refused([&] { return parse_torch_error(text); });
  if (!error) return;
  const std::string handed_up = with_exit_code(text, -9);
  const TorchError again = parse_torch_error(handed_up);
  LS_CHECK(again.message == error->message && again.traceback == error->traceback && again.timestamp == error->timestamp,
           "the file that is handed up says something else");
  check_reports({.world_rank = 1, .pid = 7, .exit_status = 1, .time = error->time, .is_foreign = true, .torch_error = error});
}

void check_error_record(std::string_view text) {
  const auto record = unless_refused([&] { return parse_error_record(text, 1); });
  if (record) check_reports({.world_rank = 1, .pid = 7, .exit_status = 1, .time = 1, .record = record});
}

}  // namespace

int fuzz_error_files(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_torch_error(text);
  check_error_record(text);
  return 0;
}
