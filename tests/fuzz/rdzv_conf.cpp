#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/rdzv_settings.h"

#include <cmath>

namespace {

using namespace lockstep;
using namespace lockstep::launch;

void check_entries(const RdzvConf& conf) {
  std::string again;
  for (const auto& [key, value] : conf.values) {
    for (const std::string& text : {key, value}) {
      LS_CHECK(!text.empty() && text.front() != ' ' && text.back() != ' ' && text.find(',') == std::string::npos,
               "an entry of '{}'", text);
    }
    again += fmt::format("{} {} = {} ", again.empty() ? "" : ",", key, value);
  }
  const RdzvConf read_again = parse_rdzv_conf(again);
  LS_CHECK(read_again.values == conf.values && read_again.malformed.empty(), "'{}' is read differently", again);
}

void check_time(const std::optional<Milliseconds>& time) {
  constexpr Milliseconds kLongest(100'000'000'000);
  LS_CHECK(!time || (*time > Milliseconds(0) && *time <= kLongest), "{} ms", time->count());
}

}  // namespace

int fuzz_rdzv_conf(const uint8_t* data, size_t size) {
  const RdzvConf conf = parse_rdzv_conf({reinterpret_cast<const char*>(data), size});
  check_entries(conf);
  try {
    const RdzvSettings settings = read_rdzv_settings(conf.values);
    check_time(settings.join_timeout);
    check_time(settings.last_call_timeout);
    check_time(settings.dead);
    LS_CHECK(settings.token_file.has_value() == conf.values.contains("token_file"), "a token file came or went");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Usage) throw;
  }
  return 0;
}
