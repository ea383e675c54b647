#pragma once

#include "lockstep/launch/agent.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep::launch {

/// A WorkerStore that speaks TCPStore's protocol. Of a single node it listens on loopback only.
std::unique_ptr<WorkerStore> open_worker_store(net::EventLoop& loop, const StoreRequest& request);

}  // namespace lockstep::launch
