#pragma once

#include "lockstep/base/files.h"

#include <nlohmann/json.hpp>

namespace lockstep::metrics {

/// Cases of tests/data/metrics/expected.json; make_expected.py beside it made them.
inline nlohmann::json expected_cases(const char* kind) {
  return nlohmann::json::parse(read_file(LOCKSTEP_TEST_DATA "/metrics/expected.json")).at(kind);
}

/// Of a value in [-1, 1] or so that is rounded in a handful of operations.
constexpr double kFewRoundings = 8 * 2.220446049250313e-16;

}  // namespace lockstep::metrics
