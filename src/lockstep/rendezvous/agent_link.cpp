#include "lockstep/rendezvous/agent_link.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

constexpr Milliseconds kFirstRetry{50};
constexpr Milliseconds kLongestRetry{1'000};
/// Longer than a cut that is no death.
constexpr Milliseconds kLastWords{6'000};

std::optional<Cause> with_short_text(std::optional<Cause> cause) {
  if (cause) cause->text = shortened(std::move(cause->text));
  return cause;
}

}  // namespace

AgentLink::AgentLink(net::EventLoop& loop, Options options, Callbacks callbacks)
    : loop_(&loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      join_deadline_(Deadline::in(options_.join_timeout)),
      clock_(Clock::now()) {
  join_timer_ = loop_->after(options_.join_timeout, [this] { on_join_timeout(); });
  waiting_timer_ = loop_->after(options_.status_interval, [this] { report_waiting(); });
  attempt_timer_ = loop_->after(Milliseconds(0), [this] { try_now(); });
}

AgentLink::~AgentLink() { stop_everything(); }

void AgentLink::try_now() {
  state_ = State::Resolving;
  connector_.reset();
  socket_.reset();
  if (options_.before_attempt) {
    if (const std::optional<net::Endpoint> own = options_.before_attempt()) options_.endpoint = *own;
  }
  resolver_ = std::make_unique<net::Resolver>(
      *loop_, options_.endpoint, left_to_join(), [this](net::Resolved resolved) { on_resolved(std::move(resolved)); },
      options_.lookup);
}

void AgentLink::try_later(const std::string& problem, Answer answer) {
  state_ = State::Waiting;
  // A sentence, as a rule; the lines that name it go on.
  problem_ = problem.substr(0, problem.find_last_not_of('.') + 1);
  const bool is_foreign = answer == Answer::Foreign || (answer == Answer::Odd && options_.before_attempt);
  if (!is_foreign) {
    foreign_since_.reset();
  } else if (!foreign_since_) {
    foreign_since_ = Clock::now();
  } else if (Clock::now() - *foreign_since_ >= options_.foreign_timeout) {
    return lost(ErrorKind::Environment,
                fmt::format("another program has the port of the endpoint {}: {}. Choose another port for --rdzv_endpoint "
                            "(on its host, ss -ltnp 'sport = :{}' shows the program).", options_.endpoint.text(), problem_,
                            options_.endpoint.port));
  }
  loop_->cancel(attempt_timer_);
  retry_delay_ = std::clamp(retry_delay_ * 2, kFirstRetry, kLongestRetry);
  attempt_timer_ = loop_->after(retry_delay_, [this] { try_now(); });
}

void AgentLink::on_resolved(net::Resolved resolved) {
  if (resolved.outcome != net::Resolved::Outcome::Found) return try_later(resolved.problem);
  state_ = State::Connecting;
  problem_ = fmt::format("connecting to {}", resolved.addresses.front().text());
  connector_ = std::make_unique<net::Connector>(*loop_, std::move(resolved.addresses), options_.attempt_timeout,
                                                [this](net::Connected connected) { on_connected(std::move(connected)); });
}

void AgentLink::on_connected(net::Connected connected) {
  if (connected.failure != net::ConnectFailure::None) return try_later(connected.problem);
  state_ = State::AwaitsChallenge;
  local_ = connected.local;
  peer_ = connected.peer;
  problem_ = fmt::format("{} accepted the connection and has not answered", peer_->text());
  socket_ = std::make_unique<net::BufferedSocket>(
      *loop_, std::move(connected.fd),
      net::BufferedSocket::Limits{.max_in = kMaxPayloadBytesOfStrangers + net::kFrameHeaderBytes, .max_out = 8 << 20},
      net::BufferedSocket::Callbacks{.on_bytes = [this] { on_bytes(); },
                                     .on_end = [this](const std::string& reason) { on_socket_end(reason); }});
  attempt_timer_ = loop_->after(options_.attempt_timeout, [this] { on_attempt_timeout(); });
  nonce_ = net::random_bytes(net::kNonceBytes);
  const Hello hello{.run_id = options_.run_id, .nonce = nonce_, .has_token = options_.token.has_value()};
  socket_->send(std::string(kPreamble).append(encode(hello)));
}

void AgentLink::on_attempt_timeout() {
  socket_->close();
  try_later(fmt::format("{} accepted the connection and said nothing for {:.1f} s: it hangs, or it is another program",
                        peer_->text(), as_seconds(options_.attempt_timeout)), Answer::Odd);
}

void AgentLink::on_bytes() {
  last_heard_ = clock_.now();
  while (state_ != State::Over && socket_->is_open() && read_frame()) {
  }
}

bool AgentLink::read_frame() {
  const size_t limit = has_joined() ? max_round_bytes(options_.join.max_nodes) : kMaxPayloadBytesOfStrangers;
  const net::ParsedFrame parsed = net::parse_frame(socket_->in(), limit);
  if (parsed.state == net::ParsedFrame::State::Incomplete) return false;
  Decoded decoded;
  if (parsed.state == net::ParsedFrame::State::Complete) decoded = decode(parsed.frame);
  if (!decoded.message) {
    const std::string said = printable(socket_->in());
    socket_->close();
    if (has_joined()) {
      lost(ErrorKind::Internal, fmt::format("the coordinator at {} sent something that is no message: {}",
                                            options_.endpoint.text(), decoded.problem));
    } else {
      try_later(fmt::format("{} is no coordinator of lockstep, it said: {}", peer_->text(), said), Answer::Foreign);
    }
    return false;
  }
  on_message(*decoded.message);
  if (state_ != State::Over && socket_->is_open()) socket_->consume(parsed.frame.size_bytes);
  return true;
}

void AgentLink::on_message(const Message& message) {
  if (const auto* refused = std::get_if<Refused>(&message)) return on_refused(*refused);
  if (state_ == State::Joined) {
    if (is_news(message) && !news_.take_from_connection()) return;
    return on_joined_message(message);
  }
  if (const auto* challenge = std::get_if<Challenge>(&message); challenge && state_ == State::AwaitsChallenge) {
    return on_challenge(*challenge);
  }
  if (const auto* welcome = std::get_if<Welcome>(&message); welcome && state_ == State::AwaitsWelcome) {
    return on_welcome(*welcome);
  }
  socket_->close();
  try_later(fmt::format("{} sent a message out of turn", peer_->text()), Answer::Foreign);
}

void AgentLink::on_challenge(const Challenge& challenge) {
  if (challenge.has_token != options_.token.has_value()) {
    return lost(ErrorKind::Usage,
                fmt::format("the coordinator at {} has {} token and this launcher has {}. Give every node the same "
                            "--rdzv_conf token_file=PATH.", options_.endpoint.text(), challenge.has_token ? "a" : "no",
                            challenge.has_token ? "none" : "one"));
  }
  Proof proof;
  if (options_.token) {
    const std::string expected = options_.token->prove("coordinator", nonce_, challenge.nonce, options_.run_id);
    if (!net::equal_in_constant_time(challenge.proof, expected)) {
      // Our own proof is not shown to somebody who lacks the token; only that it was the token.
      socket_->send(encode(Refused{.reason = RefusalReason::TokenDiffers}));
      return lost(ErrorKind::Usage, fmt::format("the token of the coordinator at {} is not this launcher's. Give every node "
                                                "the same --rdzv_conf token_file=PATH.", options_.endpoint.text()));
    }
    proof.proof = options_.token->prove("agent", nonce_, challenge.nonce, options_.run_id);
  }
  state_ = State::AwaitsWelcome;
  nonce_of_coordinator_ = challenge.nonce;
  socket_->send(encode(proof));
}

void AgentLink::on_welcome(const Welcome& welcome) {
  welcome_ = welcome;
  seal_key_ = rendezvous::seal_key(options_.token, nonce_, nonce_of_coordinator_, options_.run_id, welcome.beat_key);
  socket_->set_limits({.max_in = max_round_bytes(options_.join.max_nodes) + net::kFrameHeaderBytes, .max_out = 8 << 20});
  state_ = State::Joined;
  for (auto* timer : {&join_timer_, &waiting_timer_, &attempt_timer_}) loop_->cancel(std::exchange(*timer, 0));
  socket_->send(encode(options_.join));
  clock_ = ObservedClock(Clock::now());
  last_heard_ = clock_.now();
  if (welcome.has_udp) {
    datagrams_ = net::DatagramSocket::open(peer_->is_v6() ? net::Address::any_v6(0) : net::Address::any_v4(0));
  }
  if (datagrams_) {
    datagrams_->start(*loop_, [this](std::string_view bytes, const net::Address&) {
      on_datagram(bytes);
    });
  }
  tick_timer_ = loop_->after(Milliseconds(0), [this] { tick(); });
  if (callbacks_.on_joined) callbacks_.on_joined(*local_, *peer_);
}

void AgentLink::on_refused(const Refused& refused) {
  const std::string why = printable(refused.text, 2'000);
  if (refused.reason == RefusalReason::Ending && state_ != State::Joined) {
    socket_->close();
    return try_later(fmt::format("{} refused this node: {}", peer_->text(), why));
  }
  lost(refused.kind, fmt::format("the coordinator at {} refused this node: {}{}", options_.endpoint.text(), why,
                                 why.ends_with('.') ? "" : "."));
}

void AgentLink::on_joined_message(const Message& message) {
  if (const auto* beat = std::get_if<Beat>(&message)) return news_.confirmed(beat->num_taken);
  if (const auto* status = std::get_if<Status>(&message)) {
    if (callbacks_.on_status) callbacks_.on_status(*status);
  } else if (const auto* round = std::get_if<Round>(&message)) {
    on_round(*round);
  } else if (const auto* stop = std::get_if<Stop>(&message)) {
    callbacks_.on_stop(*stop);
  } else if (const auto* end = std::get_if<End>(&message)) {
    confirm_end();
    stop_everything();
    socket_->close_when_sent(kLastWords);
    callbacks_.on_end(*end);
  } else {
    lost(ErrorKind::Internal, fmt::format("the coordinator at {} sent a message that only an agent sends",
                                          options_.endpoint.text()));
  }
}

void AgentLink::on_round(const Round& round) {
  const auto self = std::find_if(round.members.begin(), round.members.end(),
                                 [&](const Member& member) { return member.node == welcome_.node; });
  if (self == round.members.end()) {
    return lost(ErrorKind::Internal, fmt::format("the coordinator at {} began a round without this node",
                                                 options_.endpoint.text()));
  }
  callbacks_.on_round(round, static_cast<int>(self - round.members.begin()));
}

void AgentLink::on_socket_end(const std::string& reason) {
  if (state_ != State::Joined) {
    return try_later(fmt::format("{} accepted the connection and ended it ({}): it is just ending, or it is another "
                                 "program", peer_->text(), reason), Answer::Odd);
  }
  lost(ErrorKind::Peer, fmt::format("the connection to the coordinator at {} ended ({}): the launcher on that host has "
                                    "ended or was killed.", options_.endpoint.text(), reason));
}

void AgentLink::on_join_timeout() {
  lost(ErrorKind::Timeout,
       fmt::format("no coordinator let this node in at {} within {:.0f} s; the last attempt: {}. Start the launcher on the "
                   "host of the endpoint (where it does not know that it is the host, say --rdzv_conf is_host=1), check name, "
                   "port and firewall, or raise --rdzv_conf join_timeout.",
                   options_.endpoint.text(), as_seconds(options_.join_timeout), problem_));
}

void AgentLink::report_waiting() {
  waiting_timer_ = loop_->after(options_.status_interval, [this] { report_waiting(); });
  const std::string what = state_ == State::Resolving
                               ? fmt::format("the look-up of '{}' has not been answered yet", options_.endpoint.host)
                               : problem_;
  say_waiting(fmt::format("waiting for the coordinator at {}: {}; {:.0f} s left", options_.endpoint.text(), what,
                          as_seconds(left_to_join())));
}

void AgentLink::say_waiting(const std::string& line) {
  if (callbacks_.on_waiting) callbacks_.on_waiting(line);
}

void AgentLink::outcome(uint32_t round, std::optional<Cause> cause) {
  if (has_joined()) tell(Outcome{round, with_short_text(std::move(cause))});
}

void AgentLink::stopped(uint32_t round, std::optional<Cause> cause) {
  if (has_joined()) tell(Stopped{round, with_short_text(std::move(cause))});
}

void AgentLink::leave(const Cause& cause) {
  if (has_joined()) {
    tell(Leave{*with_short_text(cause)});
    cancel_timers();
    state_ = State::Over;
    // Datagrams go on until it has got through.
    tick_timer_ = loop_->after(News::kPatience, [this] { tick(); });
  } else {
    stop_everything();
  }
  if (socket_) socket_->close_when_sent(kLastWords);
}

void AgentLink::tell(const Message& news) {
  const std::string frame = encode(news);
  news_.told(news_copy(news, frame), Clock::now());
  socket_->send(frame);
}

void AgentLink::lost(ErrorKind kind, const std::string& text) {
  stop_everything();
  // Waits for the peer only where something was said to it; a dead one would cost time.
  if (socket_ && socket_->is_open()) socket_->close_when_sent(Milliseconds(200));
  callbacks_.on_lost(kind, text);
}

void AgentLink::cancel_timers() {
  for (auto* timer : {&join_timer_, &waiting_timer_, &attempt_timer_, &tick_timer_, &farewell_timer_, &news_timer_}) {
    loop_->cancel(std::exchange(*timer, 0));
  }
}

void AgentLink::stop_everything() {
  state_ = State::Over;
  cancel_timers();
  resolver_.reset();
  connector_.reset();
  if (datagrams_) datagrams_->stop();
}

}  // namespace lockstep::rendezvous
