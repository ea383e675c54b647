// The coordinator's signs of life, and the news that datagrams carry beside the connections.
#include "lockstep/rendezvous/coordinator.h"

#include <algorithm>

namespace lockstep::rendezvous {

void Coordinator::on_datagram(std::string_view bytes, const net::Address& from) {
  const std::optional<Datagram> datagram = decode_sealed(bytes);
  if (!datagram || (datagram->sign != Sign::AgentBeat && datagram->sign != Sign::AgentFarewell)) return;
  const auto found = by_beat_key_.find(std::string(datagram->beat_key));
  // A repeated datagram is no sign of life.
  if (found == by_beat_key_.end() || datagram->sequence <= found->second.last_sequence) return;
  Session* member = session(found->second.id);
  if (member == nullptr || !is_sealed_with(bytes, member->seal_key())) return;
  found->second.last_sequence = datagram->sequence;
  found->second.address = from;
  if (datagram->sign == Sign::AgentBeat) {
    member->note_heard();
    take_news(*member, *datagram);
    if (!datagram->news.empty()) send_datagram(Sign::CoordinatorBeat, found->second, *member);
    return;
  }
  if (has_ended()) return;
  drop(member->id(), "it has not heard the coordinator for so long that it gave up: packets to it do not arrive");
  member->close();
  sweep_soon();
}

void Coordinator::take_news(Session& member, const Datagram& datagram) {
  member.news().confirmed(datagram.num_taken);
  for (const NumberedNews& one : news_in(datagram)) {
    if (member.has_joined() && member.news().take_from_datagram(one.number)) on_message(member, one.message);
  }
  // It knows how the job ended: what the connection still has to say is of no use to anybody.
  if (has_ended() && !member.has_joined() && member.news().all_confirmed()) {
    member.close();
    sweep_soon();
  }
}

void Coordinator::tick() {
  tick_timer_ = loop_->after(kTick, [this] { tick(); });
  clock_.advance(Clock::now());
  collect_heard();
  if (!has_ended()) {
    watch_silence();
    watch_udp();
    decide_now();
  }
  if (Clock::now() >= next_beat_) {
    beat();
  } else {
    repeat_late_news();
  }
  if (!has_ended() && Clock::now() >= next_status_) push_status();
}

void Coordinator::collect_heard() {
  for (Node& node : state_.nodes) {
    Session* member = session(node.id);
    if (member != nullptr && member->take_heard()) node.last_heard = clock_.now();
  }
}

void Coordinator::watch_silence() {
  for (const SilenceNews& news : check_silence(clock_.now(), state_, options_.membership)) {
    const Node* node = state_.find(news.id);
    const double span = std::chrono::duration<double>(news.span).count();
    switch (news.what) {
      case SilenceNews::What::Suspect:
        log(log::Level::Warning, fmt::format("{} has been silent for {:.1f} s; after {:.1f} s it counts as lost", node->name(),
                                             span, std::chrono::duration<double>(options_.membership.dead).count()));
        break;
      case SilenceNews::What::Recovered:
        log(log::Level::Warning, fmt::format("{} is heard again after {:.1f} s", node->name(), span));
        break;
      case SilenceNews::What::Dead:
        drop(news.id, fmt::format("silent for {:.1f} s: its network is cut, or the host hangs or is off", span));
        if (Session* member = session(news.id)) {
          say_farewell(*member);
          member->close();
        }
        sweep_soon();
        break;
    }
  }
}

/// Said once for the job: what blocks the datagrams of one node as a rule blocks those of all.
void Coordinator::watch_udp() {
  if (has_told_udp_ || !datagrams_) return;
  std::vector<std::string> names;
  for (const auto& [key, peer] : by_beat_key_) {
    const Node* node = state_.find(peer.id);
    if (node == nullptr || peer.last_sequence != 0 || clock_.now() - peer.since < options_.udp_patience) continue;
    // Silent on both ways: that is a cut.
    if (clock_.now() - node->last_heard < options_.udp_patience / 2) names.push_back(node->name());
  }
  if (names.empty()) return;
  has_told_udp_ = true;
  std::sort(names.begin(), names.end());
  log(log::Level::Warning,
      fmt::format("UDP port {} is blocked on the way from {} (a firewall?): no datagram came in {:.1f} s, where TCP passes. The "
                  "job works without, but heavy packet loss may look like death. Open UDP port {} of this host beside TCP.",
                  port(), list_names(names, names.size()), std::chrono::duration<double>(options_.udp_patience).count(), port()));
}

void Coordinator::beat() {
  next_beat_ = Clock::now() + options_.beat_interval - kTick / 2;
  ++beat_sequence_;
  for (const auto& [id, member] : sessions_) {
    if (member->has_joined()) member->beat(beat_sequence_);
  }
  for (const auto& [key, peer] : by_beat_key_) {
    if (Session* member = session(peer.id)) send_datagram(Sign::CoordinatorBeat, peer, *member);
  }
}

/// Between beats, as somebody waits for it.
void Coordinator::repeat_late_news() {
  const Clock::time_point now = Clock::now();
  for (const auto& [key, peer] : by_beat_key_) {
    Session* member = session(peer.id);
    if (member != nullptr && member->news().is_late(now)) send_datagram(Sign::CoordinatorBeat, peer, *member);
  }
}

void Coordinator::send_datagram(Sign sign, const DatagramPeer& peer, Session& member) {
  if (!datagrams_ || !peer.address) return;
  Datagram datagram{.sign = sign, .beat_key = member.beat_key(), .sequence = ++datagram_sequence_,
                    .num_taken = member.news().num_taken()};
  if (member.news().is_late(Clock::now())) member.news().add_to(datagram);
  datagrams_->send_to(seal(datagram, member.seal_key()), *peer.address);
}

/// Several times, as datagrams may be lost.
void Coordinator::say_farewell(Session& member) {
  const auto found = by_beat_key_.find(member.beat_key());
  if (found == by_beat_key_.end()) return;
  for (int i = 0; i < kFarewells; ++i) send_datagram(Sign::CoordinatorFarewell, found->second, member);
}

}  // namespace lockstep::rendezvous
