#pragma once

#include "lockstep/launch/run_spec.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep::net {
class EventLoop;
}

namespace lockstep::launch {

/// Where the workers meet (MASTER_ADDR:MASTER_PORT), held by the agent for as long as it lives.
class WorkerStore {
 public:
  virtual ~WorkerStore() = default;
  virtual uint16_t port() const = 0;
  /// A new round begins: what the workers of the last one left in the store goes.
  virtual void clear() = 0;
};

struct StoreRequest {
  std::string host;        ///< what workers will be told as MASTER_ADDR
  uint16_t port = 0;       ///< 0: any free one
  bool is_served = true;   ///< false: only keep the port free, rank 0's worker will listen there
};
/// Throws Error{Environment} when the port is taken.
using OpenStore = std::function<std::unique_ptr<WorkerStore>(net::EventLoop&, const StoreRequest&)>;

/// Keeps the port and serves nothing. A worker may still bind and listen there if it sets SO_REUSEADDR, as TCPStore does.
std::unique_ptr<WorkerStore> reserve_port(net::EventLoop& loop, const StoreRequest& request);

/// Runs a job of one node (spec.meeting == OneNode) to its end, restarts included. Returns the exit code; everything
/// else has been printed. `open_store` is asked once, before the first round.
int run_single_node(const RunSpec& spec, const OpenStore& open_store = reserve_port);

}  // namespace lockstep::launch
