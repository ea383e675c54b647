#pragma once

#include "lockstep/base/log.h"
#include "lockstep/net/datagram.h"
#include "lockstep/net/event_loop.h"
#include "lockstep/net/listen.h"
#include "lockstep/rendezvous/membership.h"
#include "lockstep/rendezvous/refusal_log.h"
#include "lockstep/rendezvous/session.h"

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep::rendezvous {

/// The one place of a job where its nodes meet: takes connections, authenticates them, keeps the membership, begins and
/// ends rounds, tells everybody. Runs on the thread of its EventLoop, beside an AgentLink of the same process if need
/// be. It decides by decide() alone and keeps time by its own clock alone.
///
/// Life: construct; listen() or take(); turn the loop. Once the job has ended, every agent has been told and has closed
/// (or 3 s have passed), is_finished() is true: turn the loop until then, or agents may miss how it ended.
class Coordinator {
 public:
  struct Options {
    std::string run_id;
    std::optional<net::Token> token = {};
    MembershipOptions membership = {};
    Milliseconds beat_interval{200};
    Milliseconds handshake_timeout{10'000};
    Milliseconds status_interval{5'000};  ///< while something is awaited
    /// So long a node may be heard over TCP without a datagram before UDP counts as blocked.
    Milliseconds udp_patience{3'000};
    Milliseconds quiet_farewell{1'000};   ///< after the end: a longer wait for somebody is said
  };
  struct Callbacks {
    /// One line for people each: who came, who was turned away and why, rounds, losses.
    std::function<void(log::Level level, const std::string& line)> log;
    /// Static backend: a worker's store client came to this port; `first_bytes` have been read from it already. Absent:
    /// such clients are turned away.
    std::function<void(UniqueFd fd, std::string_view first_bytes, const net::Address& peer)> on_store_client = {};
  };

  Coordinator(net::EventLoop& loop, Options options, Callbacks callbacks);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  ~Coordinator();

  /// Accepts from now on, and takes UDP beats on the same port where that is free (a line in the log where not).
  void listen(net::ListenSocket socket);
  /// A connection that was accepted elsewhere; non-blocking.
  void take(UniqueFd fd, const net::Address& peer);
  /// 0 before listen().
  uint16_t port() const { return listener_ ? listener_->port() : 0; }

  /// Ends the job at once for all nodes, restarts or not: this node's agent is about to go. Without effect once it ended.
  void abort(const Cause& cause);

  bool has_ended() const { return state_.phase == Phase::Ended; }
  bool is_finished() const { return finished_; }
  /// Launchers of this job that came when it had ended or was about to, and were told how (see tell_late()).
  int num_told_late() const { return num_told_late_; }
  bool has_connections() const { return !sessions_.empty(); }
  /// Once it has ended: absent for success.
  const std::optional<Cause>& cause() const { return cause_; }
  const Membership& membership() const { return state_; }
  /// Who may use a workers' store beside this coordinator: the hosts that members are on, by the addresses they were
  /// seen at and those they told (Join::addresses).
  bool is_member_address(const net::Address& address) const { return member_addresses_.contains(address.with_port(0)); }

 private:
  static constexpr Milliseconds kTick{100};
  /// For agents to take their End and close: longer than a cut that is no death.
  static constexpr Milliseconds kLastWords{6'000};

  void tick();
  void on_datagram(std::string_view bytes, const net::Address& from);
  void on_join(Session& session, const Join& join);
  void tell_late(Session& session, const Join& join);
  void on_message(Session& session, const Message& message);
  void on_end(Session& session, const std::string& how);
  void turned_away(const Session& session, const std::string& line);
  void note_addresses(const Session& member, const Join& join);
  void limit_strangers();
  void collect_heard();
  void watch_silence();
  void watch_udp();
  void tell_farewell();
  void drop(uint64_t id, const std::string& how);
  void decide_soon();
  void decide_now();
  void carry_out(const Decision& decision);
  void start_round(const Decision& decision);
  void stop_round(const Decision& decision);
  void end_job(std::optional<Cause> cause);
  void status_soon();
  void push_status();
  void beat();
  void repeat_late_news();
  void take_news(Session& member, const Datagram& datagram);
  void say_farewell(Session& member);
  /// To every living member.
  void broadcast(const Message& message);
  void sweep_soon();
  void sweep();
  Session* session(uint64_t id);
  void log(log::Level level, const std::string& line) const { callbacks_.log(level, line); }

  net::EventLoop* loop_;
  Options options_;
  Callbacks callbacks_;
  SessionRules rules_;
  Session::Callbacks session_callbacks_;
  ObservedClock clock_;
  Membership state_;
  RefusalLog refusals_;
  std::optional<Cause> cause_;
  bool finished_ = false;
  bool has_told_udp_ = false;
  int num_told_late_ = 0;

  std::unique_ptr<net::Listener> listener_;
  std::optional<net::DatagramSocket> datagrams_;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<uint64_t, Join> joins_;  ///< of members
  std::set<net::Address> member_addresses_;   ///< port 0
  struct DatagramPeer {
    uint64_t id = 0;
    Milliseconds since{0};           ///< it joined
    uint64_t last_sequence = 0;      ///< 0: no datagram has come from it
    std::optional<net::Address> address = {};  ///< where its last beat came from, and ours go
  };
  void send_datagram(Sign sign, const DatagramPeer& peer, Session& member);
  std::unordered_map<std::string, DatagramPeer> by_beat_key_;
  uint64_t next_id_ = 1;
  uint64_t beat_sequence_ = 0;
  uint64_t datagram_sequence_ = 0;

  net::EventLoop::TimerId tick_timer_ = 0;
  net::EventLoop::TimerId decide_timer_ = 0;
  net::EventLoop::TimerId status_timer_ = 0;
  net::EventLoop::TimerId sweep_timer_ = 0;
  net::EventLoop::TimerId finish_timer_ = 0;
  net::EventLoop::TimerId farewell_timer_ = 0;
  Clock::time_point next_beat_{};
  Clock::time_point next_status_{};
};

}  // namespace lockstep::rendezvous
