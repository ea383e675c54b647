#pragma once

#include "lockstep/rendezvous/agent_link.h"
#include "lockstep/rendezvous/coordinator.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::rendezvous {

/// An agent of a test: keeps what its link told.
struct Agent {
  std::unique_ptr<AgentLink> link;
  std::optional<Round> round;
  int rank = -1;
  std::vector<Stop> stops;
  std::vector<Status> statuses;
  std::vector<std::string> waiting;
  std::optional<End> end;
  std::optional<Error> lost;
  bool joined = false;
  bool answers_stop = true;  ///< says Stopped at once
};

/// A coordinator and agents in one loop over loopback.
class World {
 public:
  explicit World(Coordinator::Options options = {}, bool with_store = false);

  static Coordinator::Options options(int min_nodes, int max_nodes, int max_restarts = 0);
  /// What an agent of this world says by default, for tests to change.
  AgentLink::Options agent_options(const std::string& host_name) const;
  Agent& add(const std::string& host_name) { return add(agent_options(host_name)); }
  Agent& add(AgentLink::Options options);
  /// n1, n2, ... until the round has begun everywhere.
  std::vector<Agent*> add_all(int count);

  /// Turns the loop until `done`; false after 10 s.
  bool until(const std::function<bool()>& done);
  void turn_for(Milliseconds span);
  bool all_ended() const;
  /// Lines of the log that contain `part`.
  int count_lines(std::string_view part) const;
  std::string all_lines() const;

  /// A plain connection to the coordinator's port, non-blocking.
  UniqueFd connect_raw() const;

  net::EventLoop loop;
  Coordinator::Options settings;
  std::vector<std::string> lines;
  std::vector<std::string> store_clients;  ///< the first bytes of each
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::unique_ptr<Agent>> agents;
};

/// "rank 0: exit code 7"
Cause failure(int exit_code, const std::string& text);

}  // namespace lockstep::rendezvous
