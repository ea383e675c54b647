#pragma once

#include "lockstep/net/address.h"
#include "lockstep/net/buffered_socket.h"
#include "lockstep/net/token.h"
#include "lockstep/rendezvous/news.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::rendezvous {

/// What a coordinator demands of a connection before it listens to it.
struct SessionRules {
  std::string run_id;
  std::optional<net::Token> token = {};
  Milliseconds handshake_timeout{10'000};  ///< from the connection to Join
  bool takes_store_clients = false;        ///< static backend: workers' store clients come to the same port
  bool has_udp = false;                    ///< told to agents
  bool is_ending = false;                  ///< the job is about to end: whoever comes is for another one ...
  bool takes_late_nodes = false;           ///< ... but for launchers of this run id, which must not wait in vain
  size_t max_round_bytes = kMaxPayloadBytes;  ///< what may be sent at once, see rendezvous::max_round_bytes()
};

/// The coordinator's end of a connection: finds out what has connected, authenticates an agent, reads its messages. Runs
/// on the loop's thread. A callback must not destroy the session (destroy it from a timer, once is_over()).
class Session {
 public:
  struct Callbacks {
    std::function<void(Session&, const Join&)> on_join;
    /// After on_join: Outcome, Stopped, Leave.
    std::function<void(Session&, const Message&)> on_message;
    /// The connection is over, with how for people ("its connection ended (closed by the peer): ...", "it sent a
    /// malformed Outcome: ..."); after on_join only, and not after refuse(), finish() or close().
    std::function<void(Session&, const std::string& how)> on_end;
    /// The connection was none of ours or was turned away, with a line for the log. Nothing follows.
    std::function<void(Session&, const std::string& line)> on_turned_away;
    std::function<void(UniqueFd fd, std::string_view first_bytes, const net::Address& peer)> on_store_client;
  };

  Session(net::EventLoop& loop, UniqueFd fd, const net::Address& peer, uint64_t id, const SessionRules& rules,
          const Callbacks& callbacks);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  uint64_t id() const { return id_; }
  const net::Address& peer() const { return peer_; }
  const net::Address& local() const { return local_; }  ///< this side of the connection
  const std::string& beat_key() const { return beat_key_; }
  bool has_joined() const { return state_ == State::Joined; }
  bool is_over() const { return !socket_.is_open(); }
  /// Frames that came over the connection or datagrams told by note_heard(), since the last call.
  bool take_heard();
  void note_heard() { heard_ = true; }

  void send_frame(std::string_view frame) { socket_.send(frame); }
  /// A frame of news, and its copy for datagrams.
  void send_news(std::string_view frame, const NewsCopy& copy);
  News& news() { return news_; }
  const std::string& seal_key() const { return seal_key_; }
  /// Skipped while earlier bytes are on their way: a connection that stalls under loss would otherwise have to repeat
  /// many old beats before anything of use.
  void beat(uint64_t sequence);
  /// Says why and closes. on_turned_away is not called.
  void refuse(RefusalReason reason, ErrorKind kind, const std::string& text);
  /// Closes when all has been sent, at the latest after `longest`.
  void finish(Milliseconds longest);
  void close();

 private:
  enum class State { FirstBytes, AwaitsHello, AwaitsProof, AwaitsJoin, Joined, Over };

  void on_bytes();
  bool read_first_bytes();
  bool read_frame();
  void on_frame(const net::Frame& frame);
  void on_hello(const Hello& hello);
  void on_proof(const Proof& proof);
  void welcome();
  void on_end(const std::string& reason);
  void on_handshake_timeout();
  void turn_away(const std::string& line);
  void turn_away(RefusalReason reason, ErrorKind kind, const std::string& text);
  std::string who() const;

  net::EventLoop* loop_;
  net::Address peer_;
  net::Address local_;
  uint64_t id_;
  const SessionRules* rules_;
  const Callbacks* callbacks_;
  State state_ = State::FirstBytes;
  Hello hello_;
  std::string nonce_;
  std::string beat_key_;
  std::string seal_key_;
  News news_;
  bool heard_ = true;
  net::EventLoop::TimerId timer_ = 0;
  net::BufferedSocket socket_;
};

}  // namespace lockstep::rendezvous
