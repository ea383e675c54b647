#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Any bytes, as libFuzzer calls it. Returns 0; throws lockstep::Error{Internal} where a claim does not hold.
///
/// The bytes are a stream of the agents' protocol: frames found in it must lie within it, each must be decoded or refused
/// with words, and what was decoded must be encoded as the bytes it was read from. The same bytes as a datagram, too.
int fuzz_agent_frames(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

/// Valid inputs to begin with: every message alone, and all in a row.
std::vector<std::string> agent_frames_seeds();

}  // namespace lockstep::fuzz
