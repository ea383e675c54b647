#pragma once

#include "lockstep/net/buffered_socket.h"
#include "lockstep/net/connect.h"
#include "lockstep/net/datagram.h"
#include "lockstep/net/event_loop.h"
#include "lockstep/net/resolve.h"
#include "lockstep/net/token.h"
#include "lockstep/rendezvous/membership.h"
#include "lockstep/rendezvous/news.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::rendezvous {

/// An agent's end of the connection to its coordinator, from the first look-up to the last word. Runs on the thread of
/// its EventLoop; the coordinator may live in the same process and loop.
///
/// Life: until joined it tries again and again (the host may start last); from then on the coordinator's clock rules.
/// Exactly one of on_end, on_lost and leave() ends it. No callback comes from inside a call of a method, and a callback
/// must not destroy the link: destroy it when is_over(), from the loop's outside.
class AgentLink {
 public:
  struct Options {
    /// The coordinator's own agent gives a loopback address and Coordinator::port(): no name is looked up then.
    net::Endpoint endpoint;
    std::string run_id;
    std::optional<net::Token> token = {};
    Join join = {};
    Milliseconds join_timeout{600'000};    ///< until the coordinator has let it in; afterwards the coordinator's holds
    Milliseconds suspect{1'500};           ///< silence of the coordinator that is reported
    Milliseconds dead{5'000};              ///< silence that counts as its loss
    Milliseconds beat_interval{200};
    Milliseconds status_interval{5'000};   ///< between lines about a wait
    Milliseconds attempt_timeout{5'000};   ///< for one connection, and then for its handshake
    /// So long another program than a coordinator may answer at the endpoint before that is an error.
    Milliseconds foreign_timeout{15'000};
    /// Called before every attempt. For an agent whose host is the endpoint and whose port was taken at first: try again
    /// to become the host (try_to_host), as the port may have been a job's that was just ending; then return where the
    /// own coordinator is to be reached from now on. With it, a program at the endpoint that closes or keeps silent counts
    /// as foreign too: on this host it cannot be a relay to the host.
    std::function<std::optional<net::Endpoint>()> before_attempt = {};
    net::Lookup lookup = net::system_lookup;
  };
  struct Callbacks {
    /// Let in. `local`: this node's address as it reaches the coordinator; `peer`: the coordinator's.
    std::function<void(const net::Address& local, const net::Address& peer)> on_joined = {};
    /// A line for people: still trying to reach the coordinator, and why; or silence of the coordinator.
    std::function<void(const std::string& line)> on_waiting = {};
    /// Something is awaited by the coordinator; see Status::reason.
    std::function<void(const Status& status)> on_status = {};
    /// Start your workers; `group_rank` is this node's position in the members. Answer with outcome().
    std::function<void(const Round& round, int group_rank)> on_round;
    /// Stop your workers; answer with stopped() once none is left, at once when none runs.
    std::function<void(const Stop& stop)> on_stop;
    /// The job is over.
    std::function<void(const End& end)> on_end;
    /// Refused (Usage, Environment), not reached in time (Timeout), or the coordinator is gone (Peer): stop the workers.
    std::function<void(ErrorKind kind, const std::string& text)> on_lost;
  };

  AgentLink(net::EventLoop& loop, Options options, Callbacks callbacks);
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;
  ~AgentLink();

  /// How `round` ended here by itself; absent `cause`: all workers succeeded. Without effect once it is over.
  void outcome(uint32_t round, std::optional<Cause> cause);
  /// No worker of `round` is left here; `cause`: what failed here by itself meanwhile.
  void stopped(uint32_t round, std::optional<Cause> cause = {});
  /// This node goes, in good order: its workers are gone. Turn the loop until is_over(), so that it gets through.
  void leave(const Cause& cause);

  bool has_joined() const { return state_ == State::Joined; }
  bool is_over() const { return state_ == State::Over && (!socket_ || !socket_->is_open()); }
  /// This end and the other end of the connection; absent before it is joined.
  std::optional<net::Address> local() const { return local_; }
  std::optional<net::Address> peer() const { return peer_; }

 private:
  enum class State { Resolving, Connecting, AwaitsChallenge, AwaitsWelcome, Joined, Waiting, Over };

  void try_now();
  enum class Answer { None, Odd, Foreign };  ///< Odd: accepted and closed, or silent
  void try_later(const std::string& problem, Answer answer = Answer::None);
  void on_resolved(net::Resolved resolved);
  void on_connected(net::Connected connected);
  void on_bytes();
  bool read_frame();
  void on_message(const Message& message);
  void on_challenge(const Challenge& challenge);
  void on_welcome(const Welcome& welcome);
  void on_datagram(std::string_view bytes);
  void on_refused(const Refused& refused);
  void on_joined_message(const Message& message);
  void tell(const Message& news);
  void take_news_soon();
  void on_round(const Round& round);
  void on_socket_end(const std::string& reason);
  void on_join_timeout();
  void on_attempt_timeout();
  void report_waiting();
  void tick();
  void watch_silence();
  void beat();
  void send_datagram(Sign sign);
  void confirm_end();
  void say_farewell();
  void say_waiting(const std::string& line);
  void lost(ErrorKind kind, const std::string& text);
  void cancel_timers();
  void stop_everything();
  Milliseconds left_to_join() const { return join_deadline_.remaining(); }
  static double as_seconds(Milliseconds span) { return std::chrono::duration<double>(span).count(); }

  net::EventLoop* loop_;
  Options options_;
  Callbacks callbacks_;
  State state_ = State::Resolving;
  Deadline join_deadline_;
  std::string problem_ = "not tried yet";  ///< why it has not joined, from the last attempt
  Milliseconds retry_delay_{0};
  std::optional<Clock::time_point> foreign_since_;  ///< since when only others than a coordinator have answered

  std::unique_ptr<net::Resolver> resolver_;
  std::unique_ptr<net::Connector> connector_;
  std::unique_ptr<net::BufferedSocket> socket_;
  std::optional<net::DatagramSocket> datagrams_;
  std::optional<net::Address> local_;
  std::optional<net::Address> peer_;
  std::string nonce_;
  std::string nonce_of_coordinator_;
  std::string seal_key_;
  Welcome welcome_;
  News news_;
  std::vector<NumberedNews> by_datagram_;  ///< to be taken when the connection has had its turn
  ObservedClock clock_;
  Milliseconds last_heard_{0};
  bool suspect_ = false;
  uint64_t sequence_ = 0;
  uint64_t datagram_sequence_ = 0;
  uint64_t last_datagram_ = 0;  ///< of the coordinator
  Clock::time_point next_beat_{};

  net::EventLoop::TimerId join_timer_ = 0;
  net::EventLoop::TimerId waiting_timer_ = 0;
  net::EventLoop::TimerId attempt_timer_ = 0;  ///< the next attempt, or the end of this one's handshake
  net::EventLoop::TimerId tick_timer_ = 0;
  net::EventLoop::TimerId farewell_timer_ = 0;
  net::EventLoop::TimerId news_timer_ = 0;
};

}  // namespace lockstep::rendezvous
