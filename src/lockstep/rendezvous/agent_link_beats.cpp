// The agent's signs of life, and the news that datagrams carry beside the connection.
#include "lockstep/rendezvous/agent_link.h"

namespace lockstep::rendezvous {
namespace {

constexpr Milliseconds kTick{100};

double in_seconds(Milliseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

void AgentLink::on_datagram(std::string_view bytes) {
  const std::optional<Datagram> datagram = decode_sealed(bytes);
  if (!datagram || datagram->beat_key != welcome_.beat_key || datagram->sequence <= last_datagram_) return;
  if (!is_sealed_with(bytes, seal_key_)) return;
  last_datagram_ = datagram->sequence;
  news_.confirmed(datagram->num_taken);
  // It has left, and that is known.
  if (state_ == State::Over && news_.all_confirmed()) return socket_->close();
  if (!has_joined()) return;
  if (datagram->sign == Sign::CoordinatorBeat) {
    last_heard_ = clock_.now();
    for (NumberedNews& one : news_in(*datagram)) by_datagram_.push_back(std::move(one));
    if (!by_datagram_.empty()) take_news_soon();
  }
  if (datagram->sign != Sign::CoordinatorFarewell || farewell_timer_ != 0) return;
  // Not from inside the socket's callback, which must not stop the socket.
  farewell_timer_ = loop_->after(Milliseconds(0), [this] {
    lost(ErrorKind::Peer, fmt::format("the coordinator at {} has not heard this node for so long that it gave it up: packets "
                                      "from here do not arrive there.", options_.endpoint.text()));
  });
}

/// Not from inside the socket's callback either. What the connection has brought as well, it has brought whole: it comes first.
void AgentLink::take_news_soon() {
  if (news_timer_ != 0) return;
  news_timer_ = loop_->after(Milliseconds(0), [this] {
    news_timer_ = 0;
    const std::vector<NumberedNews> all = std::exchange(by_datagram_, {});
    for (const NumberedNews& one : all) {
      if (has_joined() && news_.take_from_datagram(one.number)) on_joined_message(one.message);
    }
    if (has_joined()) send_datagram(Sign::AgentBeat);
  });
}

void AgentLink::tick() {
  if (state_ == State::Over && (!socket_->is_open() || news_.all_confirmed())) return;
  tick_timer_ = loop_->after(kTick, [this] { tick(); });
  clock_.advance(Clock::now());
  if (Clock::now() >= next_beat_ && has_joined()) {
    beat();
  } else if (news_.is_late(Clock::now())) {
    send_datagram(Sign::AgentBeat);
  }
  if (has_joined()) watch_silence();
}

void AgentLink::watch_silence() {
  const Milliseconds silence = clock_.now() - last_heard_;
  if (silence >= options_.dead) {
    say_farewell();
    return lost(ErrorKind::Peer, fmt::format("nothing was heard from the coordinator at {} for {:.1f} s: the network between "
                                             "is cut, or its host hangs or is off.", options_.endpoint.text(),
                                             in_seconds(silence)));
  }
  if (suspect_ != (silence >= options_.suspect)) {
    suspect_ = !suspect_;
    say_waiting(suspect_ ? fmt::format("the coordinator at {} has been silent for {:.1f} s; after {:.1f} s it counts as lost",
                                       options_.endpoint.text(), in_seconds(silence), in_seconds(options_.dead))
                         : fmt::format("the coordinator at {} is heard again", options_.endpoint.text()));
  }
}

void AgentLink::beat() {
  next_beat_ = Clock::now() + options_.beat_interval - kTick / 2;
  ++sequence_;
  if (socket_->all_acknowledged()) socket_->send(encode(Beat{sequence_, news_.num_taken()}));
  send_datagram(Sign::AgentBeat);
}

void AgentLink::send_datagram(Sign sign) {
  if (!datagrams_) return;
  Datagram datagram{.sign = sign, .beat_key = welcome_.beat_key, .sequence = ++datagram_sequence_,
                    .num_taken = news_.num_taken()};
  if (news_.is_late(Clock::now())) news_.add_to(datagram);
  datagrams_->send_to(seal(datagram, seal_key_), *peer_);
}

/// So that the coordinator need not wait for a connection that stalls. Several times, as datagrams may be lost.
void AgentLink::confirm_end() {
  for (int i = 0; i < kFarewells; ++i) send_datagram(Sign::AgentBeat);
}

void AgentLink::say_farewell() {
  for (int i = 0; i < kFarewells; ++i) send_datagram(Sign::AgentFarewell);
}

}  // namespace lockstep::rendezvous
