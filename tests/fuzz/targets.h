#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// One function per parser of foreign bytes, in the form that libFuzzer calls. Any bytes go in; 0 comes out. A target
/// takes the refusals that its parser promises and checks what it claims besides; whatever else ends the call is a
/// finding: an exception (Error{Internal} of a claim that does not hold among them), a crash, a report of a sanitizer,
/// a hang, memory without bound.

/// Bytes of the network: net/frame.h, for any limit and any list of fields.
/// The first byte is the limit of a payload, the second counts the fields that follow, one byte each.
int fuzz_frames(const uint8_t* data, size_t size);
/// A stream of the agents' protocol, and the same bytes as a datagram: frames must lie within it, each must be decoded
/// or refused with words, and what was decoded must be encoded as the bytes it was read from.
int fuzz_agent_frames(const uint8_t* data, size_t size);
/// TCPStore's protocol. The first byte chooses. Even: the rest is a stream for CommandParser, which must give the same
/// commands however it is cut, and each command must be encoded as the bytes it was read from. Odd: the rest are
/// records (client, length, bytes) for three StoreSessions of one store, whose memory, waits and replies must stay
/// within their bounds.
int fuzz_store_commands(const uint8_t* data, size_t size);

/// Texts of users and of SLURM.
int fuzz_endpoints(const uint8_t* data, size_t size);
int fuzz_host_list(const uint8_t* data, size_t size);
int fuzz_rdzv_conf(const uint8_t* data, size_t size);
/// Lines NAME=VALUE; the same lines as a slurm.conf.
int fuzz_slurm_variables(const uint8_t* data, size_t size);

/// What workers leave and write.
int fuzz_error_files(const uint8_t* data, size_t size);
/// The first byte chooses workers and terminals; then records (who and what, length, bytes) for a LineMultiplexer. The
/// same bytes as a message of a worker.
int fuzz_worker_output(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

struct Target {
  std::string_view name;                       ///< also of its folder in tests/fuzz/corpus
  int (*run)(const uint8_t* data, size_t size);
  std::vector<std::string> (*seeds)();         ///< valid inputs that are made, so that they follow the protocol
  std::vector<std::string> words;              ///< pieces of its language
  size_t max_bytes;                            ///< of an input
};
const std::vector<Target>& targets();
/// Throws Error{Usage} with the names that there are.
const Target& target(std::string_view name);

/// Every command alone, and conversations.
std::vector<std::string> store_commands_seeds();
/// Every message alone, and all in a row.
std::vector<std::string> agent_frames_seeds();

}  // namespace lockstep::fuzz
