#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Any bytes, as libFuzzer calls it. Returns 0; throws lockstep::Error{Internal} where a claim does not hold.
///
/// The first byte chooses. Even: the rest is a stream for CommandParser, which must give the same commands however it
/// is cut, and each command must be encoded as the bytes it was read from. Odd: the rest are records (client, length,
/// bytes) for three StoreSessions of one store, whose memory, waits and replies must stay within their bounds.
int fuzz_store_commands(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

/// Valid inputs to begin with: every command alone, and conversations.
std::vector<std::string> store_commands_seeds();

}  // namespace lockstep::fuzz
