#include "lockstep/launch/messages.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::launch {

namespace {

using enum MessageType;
constexpr std::array<std::pair<MessageType, std::string_view>, 5> kWords = {
    {{Hello, "hello"}, {Beat, "beat"}, {Phase, "phase"}, {Done, "done"}, {Failed, "error"}}};

}  // namespace

std::string encode(const Message& message) {
  const auto word = std::find_if(kWords.begin(), kWords.end(), [&](const auto& w) { return w.first == message.type; });
  std::string packet(word->second);
  if (!message.text.empty()) packet.append(" ").append(message.text);
  if (packet.size() > kMaxMessageBytes) packet.resize(kMaxMessageBytes);
  return packet;
}

std::optional<Message> decode(std::string_view packet) {
  const size_t blank = packet.find(' ');
  const std::string_view first = packet.substr(0, blank);
  const auto word = std::find_if(kWords.begin(), kWords.end(), [&](const auto& w) { return w.second == first; });
  if (word == kWords.end()) return std::nullopt;
  return Message{word->first, blank == std::string_view::npos ? "" : std::string(packet.substr(blank + 1))};
}

}  // namespace lockstep::launch
