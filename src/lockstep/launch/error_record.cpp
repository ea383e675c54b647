#include "lockstep/launch/error_record.h"

#include <nlohmann/json.hpp>

#include <chrono>

namespace lockstep::launch {

fs::path error_record_path(const fs::path& run_folder, int world_rank) {
  return run_folder / fmt::format("error-rank{}.json", world_rank);
}

void write_error_record(const fs::path& run_folder, const ErrorRecord& record) {
  const nlohmann::ordered_json json = {
      {"kind", std::string(name(record.kind))}, {"message", record.message}, {"rank", record.world_rank},
      {"pid", record.pid},                      {"phase", record.phase},     {"time", record.time},
  };
  // A message may quote bytes of the user's data; replace what is not UTF-8 rather than lose the record.
  write_file_atomically(error_record_path(run_folder, record.world_rank),
                        json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

ErrorRecord parse_error_record(std::string_view text, int world_rank) {
  const auto json = nlohmann::json::parse(text);
  const auto& pid = json.at("pid");
  if (!pid.is_number_integer()) throw Error::data("its pid is {}", pid.dump());
  return {
      .kind = error_kind_from_name(json.at("kind").get<std::string>()),
      .message = json.at("message").get<std::string>(),
      .world_rank = world_rank,
      .pid = pid.get<int>(),
      .phase = json.at("phase").get<std::string>(),
      .time = json.at("time").get<double>(),
  };
}

std::optional<ErrorRecord> read_error_record(const fs::path& run_folder, int world_rank) {
  const fs::path path = error_record_path(run_folder, world_rank);
  std::error_code problem;
  if (!fs::exists(path, problem)) return std::nullopt;
  try {
    return parse_error_record(read_file(path), world_rank);
  } catch (const std::exception& error) {
    return ErrorRecord{.kind = ErrorKind::Internal,
                       .message = fmt::format("the error record {} cannot be read: {}", path.string(), error.what()),
                       .world_rank = world_rank,
                       .time = unix_seconds()};
  }
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep::launch
