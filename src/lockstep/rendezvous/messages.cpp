#include "lockstep/rendezvous/messages.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::rendezvous {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<Message>> kNames = {
    "Hello", "Challenge", "Proof",   "Welcome", "Refused", "Join",  "Status",
    "Round", "Outcome",   "Stop",    "Stopped", "End",     "Leave", "Beat"};
constexpr std::string_view kDatagramPreamble = "LSB2";
constexpr size_t kDatagramHeadBytes = kDatagramPreamble.size() + 1 + kBeatKeyBytes;

template <size_t kIndex>
void read_as(net::FieldReader& reader, std::optional<Message>& message) {
  std::variant_alternative_t<kIndex, Message> value;
  value.visit(reader);
  reader.finish();
  if (reader.ok()) message.emplace(std::move(value));
}

template <size_t... kIndices>
void read(size_t index, net::FieldReader& reader, std::optional<Message>& message, std::index_sequence<kIndices...>) {
  ((kIndices == index ? read_as<kIndices>(reader, message) : void()), ...);
}

}  // namespace

std::string_view name(Backend backend) { return backend == Backend::C10d ? "c10d" : "static"; }

std::string encode(const Message& message, size_t max_payload_bytes) {
  net::FieldWriter writer;
  std::visit([&](auto fields) { fields.visit(writer); }, message);
  LS_CHECK(writer.bytes().size() <= max_payload_bytes, "a {} of {} bytes", kNames[message.index()], writer.bytes().size());
  return writer.frame(static_cast<uint8_t>(message.index() + 1));
}

Decoded decode(const net::Frame& frame) {
  Decoded decoded;
  if (frame.type == 0 || frame.type > kNames.size()) {
    decoded.problem = fmt::format("{} is not one of this protocol", message_name(frame.type));
    return decoded;
  }
  net::FieldReader reader(frame.payload);
  read(frame.type - 1U, reader, decoded.message, std::make_index_sequence<std::variant_size_v<Message>>());
  if (!reader.ok()) decoded.problem = fmt::format("malformed {}: {}", message_name(frame.type), reader.problem());
  return decoded;
}

std::string message_name(uint8_t type) {
  if (type == 0 || type > kNames.size()) return fmt::format("message {}", type);
  return std::string(kNames[type - 1U]);
}

std::string shortened(std::string text, size_t max_bytes) {
  constexpr std::string_view kCut = "\n[...]\n";
  if (text.size() <= max_bytes) return text;
  const size_t kept = max_bytes > kCut.size() ? max_bytes - kCut.size() : 0;
  const size_t head = kept / 4;
  return text.substr(0, head).append(kCut).append(text, text.size() - (kept - head));
}

std::string printable(std::string_view bytes, size_t max_bytes) {
  std::string text(bytes.substr(0, max_bytes));
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  if (bytes.size() > max_bytes) text += "...";
  return text;
}

std::string encode_datagram(const Datagram& datagram) {
  net::FieldWriter fields;
  fields(datagram.sequence);
  fields(datagram.num_taken);
  fields(datagram.first_news);
  fields(std::string_view(datagram.news));
  std::string bytes(kDatagramPreamble);
  bytes.push_back(static_cast<char>(datagram.sign));
  return bytes.append(datagram.beat_key).append(fields.bytes());
}

std::optional<Datagram> decode_datagram(std::string_view bytes) {
  constexpr std::string_view kSigns = "acAC";
  if (bytes.size() < kDatagramHeadBytes || !bytes.starts_with(kDatagramPreamble)) return std::nullopt;
  bytes.remove_prefix(kDatagramPreamble.size());
  if (kSigns.find(bytes[0]) == std::string_view::npos) return std::nullopt;
  Datagram datagram{static_cast<Sign>(bytes[0]), bytes.substr(1, kBeatKeyBytes)};
  net::FieldReader fields(bytes.substr(1 + kBeatKeyBytes));
  fields(datagram.sequence), fields(datagram.num_taken), fields(datagram.first_news), fields(datagram.news);
  fields.finish();
  if (!fields.ok()) return std::nullopt;
  return datagram;
}

}  // namespace lockstep::rendezvous
