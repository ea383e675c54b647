#pragma once

#include <cstddef>
#include <cstdint>

/// One function per parser of foreign text, in the form that libFuzzer calls: any bytes go in; a crash, a check that
/// does not hold (abort) or an exception that is no lockstep::Error is a finding. Each returns 0.
int fuzz_host_list(const uint8_t* data, size_t size);
/// Lines NAME=VALUE.
int fuzz_slurm_variables(const uint8_t* data, size_t size);
