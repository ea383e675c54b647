#pragma once

// Private to agent_nodes*.cpp.
#include "lockstep/base/files.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/agent_nodes.h"
#include "lockstep/net/event_loop.h"
#include "lockstep/rendezvous/agent_link.h"
#include "lockstep/rendezvous/coordinator.h"
#include "lockstep/rendezvous/hosting.h"
#include "lockstep/rendezvous/store_server.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// One node's part of a job over several nodes, from the meeting to the last word.
class NodesAgent {
 public:
  NodesAgent(const RunSpec& spec, const MeetingSpec& meeting, NodeJob& job);
  int run();

 private:
  bool is_static() const { return meeting_.backend == rendezvous::Backend::Static; }

  // agent_nodes_meeting.cpp: the meeting
  void require_token() const;
  bool host_if_here();
  /// False while the endpoint's port is taken.
  bool host_if_free();
  /// Node rank 0 under static, and the endpoint is no address of this host. Either it leads here from outside, and nobody
  /// answers there yet; or another node has rank 0 too and serves: its coordinator then names both.
  bool hosts_elsewhere(const std::vector<net::Address>& addresses);
  void host(net::ListenSocket socket);
  /// For the case that this node becomes group rank 0. Under static the endpoint itself serves, and always node 0.
  void open_store(bool hosts);
  bool is_member(const net::Address& peer) const;
  void join(bool hosts);
  rendezvous::Join join_message() const;
  /// Membership changes are pushed at once; a line is worth it only when somebody has waited.
  void tell_status(const rendezvous::Status& status);

  // agent_nodes_round.cpp: a round
  void begin_round(const rendezvous::Round& round, int group_rank);
  void close_store();
  Placement place(const rendezvous::Round& round, int group_rank);
  void tell_round(const rendezvous::Round& round, const Placement& placement);
  bool has_round_ended() const { return round_ != 0 && !job_.running() && (!told_ || stopping_); }
  void tell_outcome();
  void tell_start_failure(const Error& error);
  rendezvous::Cause own_cause(ErrorKind kind, int exit_code, const std::string& text) const;
  std::optional<rendezvous::Cause> cause_of(const RoundOutcome& outcome) const;
  void stop_round(const rendezvous::Stop& stop);
  void tell_stop(const rendezvous::Stop& stop);

  // agent_nodes.cpp: the end
  rendezvous::Cause interrupt_cause() const;
  /// "n1: rank 3 (pid 71): exit code 7", for a line that goes on; a text that begins with the node's name gets no other.
  static std::string with_node(const rendezvous::Cause& cause);
  static bool names_its_node(const rendezvous::Cause& cause);
  static bool is_interrupt(const rendezvous::Cause& cause);
  /// The signal has been passed on to the workers, which may take their time; the others are told at once.
  void begin_to_leave();
  /// Without a Stop before it where the launcher of the coordinator itself was stopped.
  void end_job(const rendezvous::End& end);
  void lose(ErrorKind kind, const std::string& text);
  bool is_over() const;
  /// Until everybody has heard how it ended.
  void say_farewell();
  bool is_own(const rendezvous::Cause& cause) const;
  int finish();

  const RunSpec& spec_;
  const MeetingSpec& meeting_;
  NodeJob& job_;
  const std::string host_name_;
  std::string name_ = host_name_;  ///< among the nodes of the round, see rendezvous::distinct_name()
  const TempFolder host_list_folder_;
  net::EventLoop loop_;
  std::optional<rendezvous::HostQuestion> may_host_;    ///< the endpoint is this host
  std::optional<rendezvous::Coordinator> coordinator_;  ///< when it lives here
  std::optional<rendezvous::StoreServer> store_;
  std::unique_ptr<WorkerStore> reserved_;
  uint16_t store_port_ = 0;
  std::string known_as_;  ///< the endpoint's address, where the coordinator lives here
  std::optional<rendezvous::AgentLink> link_;
  std::vector<net::Address> members_;

  uint32_t round_ = 0;      ///< that runs here, or has run and is not over; 0: none
  int group_rank_ = -1;
  bool told_ = false;       ///< the outcome of the round
  bool stopping_ = false;   ///< Stopped is awaited from here
  bool leaving_ = false;    ///< after a signal
  RoundOutcome outcome_;
  std::string start_failure_;
  std::optional<rendezvous::End> end_;
  std::optional<std::pair<ErrorKind, std::string>> lost_;
  Clock::time_point waits_since_;
};

}  // namespace lockstep::launch
