#pragma once

#include "lockstep/base/error.h"

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// What the shell lets this process have (ulimit). Absent: as much as there is.
struct Limits {
  std::optional<uint64_t> open_files = {};
  std::optional<uint64_t> processes = {};  ///< and threads, of this user
  std::optional<uint64_t> address_space_bytes = {};
};
Limits current_limits();

/// Pure. Which limit to raise, and how, for a message that holds the system's words for one that was hit. Empty for other
/// messages, for a message that names the limit itself, and for memory where no limit is set.
std::string limit_advice(std::string_view message, const Limits& limits);

/// Pure. An exception that reached the edge of a program, as an Error: Error as it is; a lack of memory, threads or
/// descriptors, or a fault of the file system, as Environment; else Internal. Those of Environment have the advice.
Error as_error(const std::exception& problem, const Limits& limits);

/// Pure. Why a node under these limits cannot serve the meeting of so many nodes, with the remedy; empty when it can.
std::string serving_problem(const Limits& limits, int num_nodes, int num_workers);

/// "488 MiB of address space": for messages.
std::string address_space_words(uint64_t bytes);

}  // namespace lockstep::launch
