#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/net/token.h"
#include "lockstep/rendezvous/messages.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What must get through soon although the connection stalls: a lost packet is repeated after 0.2 s, then later and
/// later, and all that comes behind it waits. Each piece of news goes by the connection, and again and again by datagram
/// while the other side does not say that it has taken it. Both sides count, so that it is taken once and in order.
namespace lockstep::rendezvous {

/// Round, Stop, End; Outcome, Stopped, Leave.
bool is_news(const Message& message);

using NewsCopy = std::shared_ptr<const std::string>;
/// The frame for datagrams, with the text of its cause shortened where it would not fit; null where it cannot (a Round
/// of many nodes): that one and what comes after it wait for the connection.
NewsCopy news_copy(const Message& message, std::string_view frame);

/// The news of one connection, both ways. Without sockets and clocks.
class News {
 public:
  /// After which a copy is sent; a healthy connection has brought it by then.
  static constexpr Milliseconds kPatience{100};

  // ---- what this side tells
  void told(NewsCopy copy, Clock::time_point now);
  /// The other side has taken so many. A number that is too large is ignored.
  void confirmed(uint32_t num_taken);
  bool all_confirmed() const { return waiting_.empty(); }
  bool is_late(Clock::time_point now) const { return !waiting_.empty() && now - waiting_.front().since >= kPatience; }
  /// Puts copies of the oldest that are not confirmed into a datagram, as many as fit.
  void add_to(Datagram& datagram) const;

  // ---- what the other side tells
  /// The next one has come by the connection: true where no datagram has brought it before.
  bool take_from_connection();
  /// Number `which` has come by a datagram: true where it is the next one.
  bool take_from_datagram(uint32_t which);
  uint32_t num_taken() const { return num_taken_; }

 private:
  struct Waiting {
    NewsCopy copy;
    Clock::time_point since;
  };
  std::deque<Waiting> waiting_;  ///< not confirmed, the oldest first
  uint32_t num_told_ = 0;
  uint32_t num_taken_ = 0;
  uint32_t num_by_connection_ = 0;
};

struct NumberedNews {
  uint32_t number = 0;
  Message message;
};
/// Ends at the first that is malformed or no news.
std::vector<NumberedNews> news_in(const Datagram& datagram);

/// The key that datagrams of a connection are sealed with: nobody without the job's token can know it. Without a token it
/// is the beat key.
std::string seal_key(const std::optional<net::Token>& token, std::string_view nonce_of_agent,
                     std::string_view nonce_of_coordinator, std::string_view run_id, std::string_view beat_key);
std::string seal(const Datagram& datagram, std::string_view key);
/// Without a look at the seal: it names the connection and so the key.
std::optional<Datagram> decode_sealed(std::string_view bytes);
bool is_sealed_with(std::string_view bytes, std::string_view key);

}  // namespace lockstep::rendezvous
