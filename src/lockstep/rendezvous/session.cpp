#include "lockstep/rendezvous/session.h"

#include "lockstep/net/connect.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

constexpr net::BufferedSocket::Limits kLimitsOfStrangers{.max_in = kMaxPayloadBytesOfStrangers + net::kFrameHeaderBytes,
                                                         .max_out = 64 * 1024};
constexpr size_t kMaxOut = 8 << 20;
/// For the last words to a peer that does not read.
constexpr Milliseconds kLinger{1'000};

}  // namespace

Session::Session(net::EventLoop& loop, UniqueFd fd, const net::Address& peer, uint64_t id, const SessionRules& rules,
                 const Callbacks& callbacks)
    : loop_(&loop), peer_(peer), local_(net::Address::local_of(fd.get())), id_(id), rules_(&rules), callbacks_(&callbacks),
      socket_(loop, std::move(fd), kLimitsOfStrangers,
              {.on_bytes = [this] { on_bytes(); }, .on_end = [this](const std::string& reason) { on_end(reason); }}) {
  net::tune_for_control(socket_.fd());
  timer_ = loop_->after(rules.handshake_timeout, [this] { on_handshake_timeout(); });
}

Session::~Session() { loop_->cancel(timer_); }

bool Session::take_heard() {
  const bool heard = heard_;
  heard_ = false;
  return heard;
}

void Session::beat(uint64_t sequence) {
  if (socket_.is_open() && socket_.all_acknowledged()) socket_.send(encode(Beat{sequence, news_.num_taken()}));
}

void Session::send_news(std::string_view frame, const NewsCopy& copy) {
  news_.told(copy, Clock::now());
  socket_.send(frame);
}

void Session::refuse(RefusalReason reason, ErrorKind kind, const std::string& text) {
  socket_.send(encode(Refused{reason, kind, shortened(text)}));
  finish(kLinger);
}

void Session::finish(Milliseconds longest) {
  state_ = State::Over;
  loop_->cancel(timer_);
  socket_.close_when_sent(longest);
}

void Session::close() {
  state_ = State::Over;
  loop_->cancel(timer_);
  socket_.close();
}

void Session::on_bytes() {
  if (state_ == State::FirstBytes && !read_first_bytes()) return;
  while (state_ != State::Over && read_frame()) {
  }
}

bool Session::read_first_bytes() {
  const std::string_view bytes = socket_.in();
  if (bytes.front() == '\0') {
    if (!rules_->takes_store_clients) {
      turn_away(fmt::format("{} is a TCPStore client (a worker of torch). Workers' store is at their MASTER_ADDR and "
                            "MASTER_PORT, not here", who()));
      return false;
    }
    state_ = State::Over;
    loop_->cancel(timer_);
    UniqueFd fd = socket_.release();
    callbacks_->on_store_client(std::move(fd), socket_.in(), peer_);
    return false;
  }
  const std::string_view begin = kPreamble.substr(0, 3);
  const std::string_view seen = bytes.substr(0, kPreamble.size());
  if (seen.substr(0, 3) != begin.substr(0, std::min(seen.size(), begin.size()))) {
    turn_away(fmt::format("{} is no launcher of lockstep; it said: {}", who(), printable(bytes)));
    return false;
  }
  if (seen.size() < kPreamble.size()) return false;
  if (seen != kPreamble) {
    turn_away(RefusalReason::Protocol, ErrorKind::Environment,
              fmt::format("it speaks '{}', this is lockstep's protocol '{}'. Use one version of lockstep on all nodes",
                          printable(seen), kPreamble));
    return false;
  }
  socket_.consume(kPreamble.size());
  state_ = State::AwaitsHello;
  return true;
}

bool Session::read_frame() {
  const size_t limit = has_joined() || state_ == State::AwaitsJoin ? kMaxPayloadBytes : kMaxPayloadBytesOfStrangers;
  const net::ParsedFrame parsed = net::parse_frame(socket_.in(), limit);
  if (parsed.state == net::ParsedFrame::State::Incomplete) return false;
  if (parsed.state == net::ParsedFrame::State::TooLarge) {
    turn_away(RefusalReason::Malformed, ErrorKind::Internal,
              fmt::format("it announced a message of {} bytes where at most {} are taken", parsed.length, limit));
    return false;
  }
  heard_ = true;
  on_frame(parsed.frame);
  if (state_ != State::Over) socket_.consume(parsed.frame.size_bytes);
  return true;
}

void Session::on_frame(const net::Frame& frame) {
  // The version stands first, so that another version's Hello need not be understood.
  if (state_ == State::AwaitsHello && frame.type == 1) {
    uint32_t version = 0;
    net::FieldReader reader(frame.payload);
    reader(version);
    if (reader.ok() && version != kProtocolVersion) {
      return turn_away(RefusalReason::Protocol, ErrorKind::Environment,
                       fmt::format("it speaks version {} of lockstep's protocol, this is version {}. Use one version of "
                                   "lockstep on all nodes", version, kProtocolVersion));
    }
  }
  const Decoded decoded = decode(frame);
  if (!decoded.message) return turn_away(RefusalReason::Malformed, ErrorKind::Internal, "it sent a " + decoded.problem);
  const Message& message = *decoded.message;
  if (state_ == State::AwaitsHello && std::holds_alternative<Hello>(message)) return on_hello(std::get<Hello>(message));
  if (state_ == State::AwaitsProof) {
    if (const auto* proof = std::get_if<Proof>(&message)) return on_proof(*proof);
    if (const auto* refused = std::get_if<Refused>(&message); refused && refused->reason == RefusalReason::TokenDiffers) {
      return turn_away(fmt::format("{} has another token than this job and left", who()));
    }
  }
  if (state_ == State::AwaitsJoin && std::holds_alternative<Join>(message)) {
    state_ = State::Joined;
    loop_->cancel(timer_);
    return callbacks_->on_join(*this, std::get<Join>(message));
  }
  if (const auto* beat = std::get_if<Beat>(&message); beat && (has_joined() || state_ == State::AwaitsJoin)) {
    return news_.confirmed(beat->num_taken);
  }
  if (has_joined()) {
    if (is_news(message) && !news_.take_from_connection()) return;
    return callbacks_->on_message(*this, message);
  }
  turn_away(RefusalReason::Malformed, ErrorKind::Internal, fmt::format("it sent {} out of turn", message_name(frame.type)));
}

void Session::on_hello(const Hello& hello) {
  hello_ = hello;
  const bool has_token = rules_->token.has_value();
  const bool is_late = rules_->takes_late_nodes && hello.run_id == rules_->run_id && hello.has_token == has_token;
  // The next job at the same endpoint, as a rule, with another token and another run id.
  if (rules_->is_ending && !is_late) return turn_away(RefusalReason::Ending, ErrorKind::Usage, "the job here is just ending");
  if (hello.has_token != has_token) {
    return turn_away(RefusalReason::TokenMissing, ErrorKind::Usage,
                     has_token ? "this job has a token and that launcher has none. Give every node the same "
                                 "--rdzv_conf token_file=PATH"
                               : "that launcher has a token and the job here has none. Give every node the same "
                                 "--rdzv_conf token_file=PATH, or none of them");
  }
  if (hello.nonce.size() != net::kNonceBytes) {
    return turn_away(RefusalReason::Malformed, ErrorKind::Internal, "its Hello has no nonce");
  }
  // With a token the other run's name is only told to who proves to have it.
  if (!has_token && hello.run_id != rules_->run_id) return welcome();
  nonce_ = net::random_bytes(net::kNonceBytes);
  Challenge challenge{.nonce = nonce_, .has_token = has_token};
  if (has_token) challenge.proof = rules_->token->prove("coordinator", hello.nonce, nonce_, hello.run_id);
  state_ = State::AwaitsProof;
  socket_.send(encode(challenge));
}

void Session::on_proof(const Proof& proof) {
  const std::string expected =
      rules_->token ? rules_->token->prove("agent", hello_.nonce, nonce_, hello_.run_id) : std::string();
  if (!net::equal_in_constant_time(proof.proof, expected)) {
    return turn_away(RefusalReason::TokenDiffers, ErrorKind::Usage,
                     "its token is not this job's. Give every node the same --rdzv_conf token_file=PATH");
  }
  welcome();
}

void Session::welcome() {
  if (hello_.run_id != rules_->run_id) {
    return turn_away(RefusalReason::RunId, ErrorKind::Usage,
                     fmt::format("it belongs to the job '{}' and here meets the job '{}' (--rdzv_id). Give each job an "
                                 "endpoint of its own, and all nodes of a job the same id",
                                 printable(hello_.run_id), printable(rules_->run_id)));
  }
  state_ = State::AwaitsJoin;
  beat_key_ = net::random_bytes(kBeatKeyBytes);
  seal_key_ = rendezvous::seal_key(rules_->token, hello_.nonce, nonce_, hello_.run_id, beat_key_);
  socket_.set_limits({.max_in = kMaxPayloadBytes + net::kFrameHeaderBytes, .max_out = kMaxOut + rules_->max_round_bytes});
  socket_.send(encode(Welcome{id_, beat_key_, rules_->has_udp}));
}

void Session::on_end(const std::string& reason) {
  loop_->cancel(timer_);
  const State before = std::exchange(state_, State::Over);
  if (before == State::Joined) {
    return callbacks_->on_end(*this, fmt::format("its connection ended ({}): the launcher there has ended or was killed", reason));
  }
  if (before == State::Over) return;
  const bool said_nothing = before == State::FirstBytes && socket_.in().empty();
  callbacks_->on_turned_away(*this, said_nothing ? fmt::format("{} connected, said nothing and left (a port scan?)", who())
                                                 : fmt::format("{} left before it had joined: {}", who(), reason));
}

void Session::on_handshake_timeout() {
  const auto waited = std::chrono::duration<double>(rules_->handshake_timeout).count();
  if (state_ == State::FirstBytes) {
    return turn_away(fmt::format("{} did not say what it is within {:.1f} s", who(), waited));
  }
  turn_away(RefusalReason::Other, ErrorKind::Timeout, fmt::format("it had not joined within {:.1f} s", waited));
}

void Session::turn_away(const std::string& line) {
  close();
  callbacks_->on_turned_away(*this, line);
}

void Session::turn_away(RefusalReason reason, ErrorKind kind, const std::string& text) {
  const bool had_joined = has_joined();
  refuse(reason, kind, text);
  if (had_joined) return callbacks_->on_end(*this, text);
  callbacks_->on_turned_away(*this, fmt::format("{} was refused: {}", who(), text));
}

std::string Session::who() const { return peer_.text(); }

}  // namespace lockstep::rendezvous
