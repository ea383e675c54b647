#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// What a worker says to its front program. One message is one packet of a SOCK_SEQPACKET socket pair, so it arrives
/// whole or not at all: a beat that finds the buffer full (the front program is stopped) may be dropped.
enum class MessageType {
  Hello,  ///< the program runs; sent once, first
  Beat,   ///< every kBeatPeriod from a thread of its own, so that a long computation is not silence
  Phase,  ///< what the worker does now, for error messages
  Done,   ///< the text of the run's last line
  Failed, ///< the error record has been written; the process will end
};

struct Message {
  MessageType type = MessageType::Beat;
  std::string text;
  bool operator==(const Message&) const = default;
};

inline constexpr size_t kMaxMessageBytes = 4096;

/// "beat", "phase load the model": the word, then the text after one blank. A longer text is cut.
std::string encode(const Message& message);
/// Absent for an unknown word.
std::optional<Message> decode(std::string_view packet);

}  // namespace lockstep::launch
