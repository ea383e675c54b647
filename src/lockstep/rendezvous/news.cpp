#include "lockstep/rendezvous/news.h"

#include "lockstep/net/datagram.h"

#include <utility>

namespace lockstep::rendezvous {
namespace {

constexpr size_t kSealBytes = 16;
/// What remains of a datagram for news.
constexpr size_t kMaxNewsBytes = net::DatagramSocket::kMaxBytes - kSealBytes - 64;
/// Of a cause in a copy; its other fields and names take a few hundred bytes at most.
constexpr size_t kMaxCopiedTextBytes = 600;

struct CauseOf {
  Cause* operator()(Outcome& message) const { return message.cause ? &*message.cause : nullptr; }
  Cause* operator()(Stopped& message) const { return message.cause ? &*message.cause : nullptr; }
  Cause* operator()(End& message) const { return message.cause ? &*message.cause : nullptr; }
  Cause* operator()(Stop& message) const { return &message.cause; }
  Cause* operator()(Leave& message) const { return &message.cause; }
  template <class M>
  Cause* operator()(M& /*message*/) const {
    return nullptr;
  }
};

}  // namespace

bool is_news(const Message& message) {
  return std::holds_alternative<Round>(message) || std::holds_alternative<Outcome>(message) ||
         std::holds_alternative<Stop>(message) || std::holds_alternative<Stopped>(message) ||
         std::holds_alternative<End>(message) || std::holds_alternative<Leave>(message);
}

NewsCopy news_copy(const Message& message, std::string_view frame) {
  if (frame.size() <= kMaxNewsBytes) return std::make_shared<const std::string>(frame);
  Message shorter = message;
  Cause* cause = std::visit(CauseOf(), shorter);
  if (cause == nullptr) return nullptr;
  cause->text = shortened(std::move(cause->text), kMaxCopiedTextBytes);
  std::string copy = encode(shorter);
  if (copy.size() > kMaxNewsBytes) return nullptr;
  return std::make_shared<const std::string>(std::move(copy));
}

void News::told(NewsCopy copy, Clock::time_point now) {
  waiting_.push_back({std::move(copy), now});
  ++num_told_;
}

void News::confirmed(uint32_t num_taken) {
  if (num_taken > num_told_) return;
  while (!waiting_.empty() && num_told_ - waiting_.size() < num_taken) waiting_.pop_front();
}

void News::add_to(Datagram& datagram) const {
  datagram.first_news = num_told_ - static_cast<uint32_t>(waiting_.size());
  for (const Waiting& one : waiting_) {
    if (!one.copy || datagram.news.size() + one.copy->size() > kMaxNewsBytes) return;
    datagram.news += *one.copy;
  }
}

bool News::take_from_connection() {
  if (num_by_connection_++ < num_taken_) return false;
  ++num_taken_;
  return true;
}

bool News::take_from_datagram(uint32_t which) {
  if (which != num_taken_) return false;
  ++num_taken_;
  return true;
}

std::vector<NumberedNews> news_in(const Datagram& datagram) {
  std::vector<NumberedNews> all;
  std::string_view rest = datagram.news;
  while (true) {
    const net::ParsedFrame parsed = net::parse_frame(rest, kMaxNewsBytes);
    if (parsed.state != net::ParsedFrame::State::Complete) return all;
    Decoded decoded = decode(parsed.frame);
    if (!decoded.message || !is_news(*decoded.message)) return all;
    all.push_back({datagram.first_news + static_cast<uint32_t>(all.size()), std::move(*decoded.message)});
    rest.remove_prefix(parsed.frame.size_bytes);
  }
}

std::string seal_key(const std::optional<net::Token>& token, std::string_view nonce_of_agent,
                     std::string_view nonce_of_coordinator, std::string_view run_id, std::string_view beat_key) {
  return token ? token->prove("datagrams", nonce_of_agent, nonce_of_coordinator, run_id) : std::string(beat_key);
}

std::string seal(const Datagram& datagram, std::string_view key) {
  std::string bytes = encode_datagram(datagram);
  return bytes.append(net::keyed_hash(key, bytes), 0, kSealBytes);
}

std::optional<Datagram> decode_sealed(std::string_view bytes) {
  if (bytes.size() < kSealBytes) return std::nullopt;
  return decode_datagram(bytes.substr(0, bytes.size() - kSealBytes));
}

bool is_sealed_with(std::string_view bytes, std::string_view key) {
  if (bytes.size() < kSealBytes) return false;
  const std::string expected = net::keyed_hash(key, bytes.substr(0, bytes.size() - kSealBytes));
  return net::equal_in_constant_time(bytes.substr(bytes.size() - kSealBytes), std::string_view(expected).substr(0, kSealBytes));
}

}  // namespace lockstep::rendezvous
