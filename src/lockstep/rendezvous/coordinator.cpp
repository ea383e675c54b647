#include "lockstep/rendezvous/coordinator.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::rendezvous {
namespace {

constexpr Milliseconds kStatusDelay{50};   ///< joins of a moment share one Status

std::string node_name_of(const Session& session, const Join& join) { return node_name(join.host_name, session.peer()); }

/// Printed everywhere and sent on to everybody.
bool is_plain(std::string_view text, size_t max_bytes) {
  return text.size() <= max_bytes && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// Why the texts of a Join cannot be taken; empty when they can.
std::string text_problem(const Join& join) {
  const bool fits = !join.host_name.empty() && is_plain(join.host_name, 255) && is_plain(join.local_addr, 255) &&
                    is_plain(join.rank_origin, 64) && join.role.size() <= 255 && join.program.size() <= 4096 &&
                    join.addresses.size() <= 256 &&
                    std::all_of(join.addresses.begin(), join.addresses.end(),
                                [](const std::string& address) { return is_plain(address, 64); });
  return fits ? "" : "its Join has a name that is empty, too long or not plain text";
}

}  // namespace

Coordinator::Coordinator(net::EventLoop& loop, Options options, Callbacks callbacks)
    : loop_(&loop), options_(std::move(options)), callbacks_(std::move(callbacks)), clock_(Clock::now()) {
  rules_ = {.run_id = options_.run_id,
            .token = options_.token,
            .handshake_timeout = options_.handshake_timeout,
            .takes_store_clients = static_cast<bool>(callbacks_.on_store_client),
            .takes_late_nodes = true,
            .max_round_bytes = max_round_bytes(static_cast<size_t>(options_.membership.max_nodes))};
  session_callbacks_ = {
      .on_join = [this](Session& session, const Join& join) { on_join(session, join); },
      .on_message = [this](Session& session, const Message& message) { on_message(session, message); },
      .on_end = [this](Session& session, const std::string& reason) { on_end(session, reason); },
      .on_turned_away = [this](Session& session, const std::string& line) { turned_away(session, line); },
      .on_store_client =
          [this](UniqueFd fd, std::string_view first_bytes, const net::Address& peer) {
            sweep_soon();
            callbacks_.on_store_client(std::move(fd), first_bytes, peer);
          },
  };
  next_status_ = Clock::now() + options_.status_interval;
  tick_timer_ = loop_->after(kTick, [this] { tick(); });
}

Coordinator::~Coordinator() {
  for (const auto timer : {tick_timer_, decide_timer_, status_timer_, sweep_timer_, finish_timer_,
                           farewell_timer_}) {
    loop_->cancel(timer);
  }
}

void Coordinator::listen(net::ListenSocket socket) {
  datagrams_ = net::DatagramSocket::open(socket.local());
  if (datagrams_) {
    datagrams_->start(*loop_, [this](std::string_view bytes, const net::Address& from) { on_datagram(bytes, from); });
    rules_.has_udp = true;
  } else {
    log(log::Level::Warning, fmt::format("UDP port {} cannot be had ({}): signs of life go by TCP alone, and heavy packet "
                                         "loss may look like death", socket.port(), std::strerror(errno)));
  }
  listener_ = std::make_unique<net::Listener>(
      *loop_, std::move(socket), [this](UniqueFd fd, const net::Address& peer) { take(std::move(fd), peer); },
      [this](const std::string& text) { log(log::Level::Warning, text); });
}

void Coordinator::take(UniqueFd fd, const net::Address& peer) {
  limit_strangers();
  const uint64_t id = next_id_++;
  sessions_.emplace(id, std::make_unique<Session>(*loop_, std::move(fd), peer, id, rules_, session_callbacks_));
}

/// Connections that have not joined are bounded; the oldest makes room, as honest ones join within milliseconds.
void Coordinator::limit_strangers() {
  const size_t most = joins_.size() + 2 * static_cast<size_t>(std::min(options_.membership.max_nodes, 8192)) + 256;
  if (sessions_.size() < most) return;
  uint64_t oldest = next_id_;
  for (const auto& [id, session] : sessions_) {
    if (!session->has_joined() && !session->is_over()) oldest = std::min(oldest, id);
  }
  if (Session* found = session(oldest)) {
    found->close();
    turned_away(*found, fmt::format("{} was cut off: too many connections that do not join", found->peer().text()));
  }
}

Session* Coordinator::session(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

/// Nodes are sorted by it. The coordinator's own agent comes by loopback, where every other node has its real address.
static net::Address sorting_address(const net::Address& peer, const Join& join) {
  if (!peer.is_loopback() || join.addresses.empty()) return peer;
  return net::Address::parse(join.addresses.front(), peer.port()).value_or(peer);
}

void Coordinator::note_addresses(const Session& member, const Join& join) {
  member_addresses_.insert(member.peer().with_port(0));
  // A member on this host may come from any of this host's addresses.
  member_addresses_.insert(member.local().with_port(0));
  for (const std::string& text : join.addresses) {
    if (const auto address = net::Address::parse(text, 0)) member_addresses_.insert(*address);
  }
}

void Coordinator::on_join(Session& session, const Join& join) {
  const MembershipOptions& membership = options_.membership;
  RankCandidate candidate{.host_name = join.host_name, .address = sorting_address(session.peer(), join),
                          .origin = join.rank_origin};
  if (join.wanted_rank >= 0) candidate.wanted = join.wanted_rank;
  JoinProblem problem{RefusalReason::Malformed, text_problem(join)};
  if (problem.text.empty()) problem = {RefusalReason::Settings, settings_problem(membership, join)};
  if (problem.text.empty() && rules_.is_ending && rules_.takes_late_nodes) return tell_late(session, join);
  if (problem.text.empty()) problem = join_problem(state_, membership, candidate);
  if (!problem.text.empty()) {
    session.refuse(problem.reason, ErrorKind::Usage, problem.text);
    state_.note = fmt::format("refused {}: {}", node_name(printable(join.host_name), session.peer()), problem.text);
    return turned_away(session, state_.note);
  }
  note_joined(clock_.now(), state_, session.id(), candidate);
  joins_.emplace(session.id(), join);
  by_beat_key_.emplace(session.beat_key(), DatagramPeer{.id = session.id(), .since = clock_.now()});
  note_addresses(session, join);
  log(log::Level::Debug, fmt::format("{} joined ({} of {})", node_name_of(session, join), state_.num_living(),
                                     membership.max_nodes));
  status_soon();
  decide_soon();
}

/// It would wait for a job that is over. One that had all its nodes has no late ones: then this is the next job at the
/// endpoint, see start_round().
void Coordinator::tell_late(Session& session, const Join& join) {
  const End end{has_ended() ? cause_ : first_cause(state_.causes)};
  log(log::Level::Info, fmt::format("{} came too late and is told how the job ended", node_name_of(session, join)));
  const std::string frame = encode(end);
  session.send_news(frame, news_copy(end, frame));
  session.finish(kLastWords);
  ++num_told_late_;
  sweep_soon();
}

void Coordinator::on_message(Session& session, const Message& message) {
  if (const auto* outcome = std::get_if<Outcome>(&message)) {
    note_outcome(state_, session.id(), *outcome);
  } else if (const auto* stopped = std::get_if<Stopped>(&message)) {
    note_stopped(state_, session.id(), *stopped);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    log(log::Level::Info, fmt::format("{} leaves: {}", node_name_of(session, joins_.at(session.id())), leave->cause.text));
    note_left(state_, session.id(), leave->cause);
    session.finish(kLastWords);
    sweep_soon();
  } else {
    session.refuse(RefusalReason::Malformed, ErrorKind::Internal, "a message that only a coordinator sends");
    drop(session.id(), "it sent a message that only a coordinator sends");
  }
  decide_soon();
}

void Coordinator::on_end(Session& session, const std::string& how) {
  sweep_soon();
  if (!has_ended()) drop(session.id(), how);
}

void Coordinator::drop(uint64_t id, const std::string& how) {
  Node* node = state_.find(id);
  if (node != nullptr && node->is_living()) log(log::Level::Warning, fmt::format("{} is lost: {}", node->name(), how));
  note_lost(state_, id, how);
  status_soon();
  decide_soon();
}

void Coordinator::turned_away(const Session& session, const std::string& line) {
  sweep_soon();
  if (const auto text = refusals_.pass(session.peer(), line, Clock::now())) log(log::Level::Warning, *text);
}

void Coordinator::status_soon() {
  next_status_ = std::min(next_status_, Clock::now() + kStatusDelay);
  if (status_timer_ != 0) return;
  status_timer_ = loop_->after(kStatusDelay, [this] {
    status_timer_ = 0;
    if (!has_ended() && Clock::now() >= next_status_) push_status();
  });
}

void Coordinator::push_status() {
  next_status_ = Clock::now() + options_.status_interval;
  const Decision decision = decide(clock_.now(), state_, options_.membership);
  if (decision.what != Decision::What::Wait || decision.reason.empty()) return;
  Status status{.reason = shortened(decision.reason),
                .num_present = static_cast<uint32_t>(state_.num_living()),
                .present = first_names(state_)};
  if (decision.left) status.seconds_left = static_cast<int32_t>(decision.left->count() / 1000);
  if (options_.membership.backend == Backend::Static && state_.phase == Phase::Gathering) {
    for (const int rank : missing_ranks(state_.candidates(), options_.membership.max_nodes)) {
      if (status.missing_ranks.size() < Status::kMaxNames) status.missing_ranks.push_back(rank);
    }
  }
  broadcast(status);
}

void Coordinator::broadcast(const Message& message) {
  const std::string frame = encode(message, rules_.max_round_bytes);
  const NewsCopy copy = is_news(message) ? news_copy(message, frame) : nullptr;
  for (const Node& node : state_.nodes) {
    Session* member = session(node.id);
    if (!node.is_living() || member == nullptr || !member->has_joined()) continue;
    if (is_news(message)) {
      member->send_news(frame, copy);
    } else {
      member->send_frame(frame);
    }
  }
}

void Coordinator::sweep_soon() {
  if (sweep_timer_ != 0) return;
  sweep_timer_ = loop_->after(Milliseconds(0), [this] { sweep(); });
}

void Coordinator::sweep() {
  sweep_timer_ = 0;
  bool closing = false;
  std::erase_if(sessions_, [&](const auto& entry) {
    const Session& session = *entry.second;
    closing = closing || (!session.has_joined() && !session.is_over());
    if (!session.is_over()) return false;
    by_beat_key_.erase(session.beat_key());
    joins_.erase(entry.first);
    return true;
  });
  // Those that wait for their peer to close come to their end without a word.
  if (closing && sweep_timer_ == 0) sweep_timer_ = loop_->after(has_ended() ? kTick / 20 : kTick, [this] { sweep(); });
  if (has_ended() && joins_.empty()) finished_ = true;
}

}  // namespace lockstep::rendezvous
