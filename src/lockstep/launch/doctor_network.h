#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/launch/doctor_report.h"
#include "lockstep/net/address.h"
#include "lockstep/net/connect.h"
#include "lockstep/net/resolve.h"

#include <string>
#include <vector>

namespace lockstep::launch {

/// This node's name and addresses; `lookup` gives what the system says about the name. Blocks for `longest` at most.
Findings check_own_name(const std::string& host_name, const std::vector<net::Address>& local, Milliseconds longest,
                        const net::Lookup& lookup = net::system_lookup);

/// Listens on a free port on all addresses and connects to it by each of `local`: a real round trip.
Findings check_local_ports(const std::vector<net::Address>& local, Milliseconds longest);

/// Name, connection and, where `lockstep doctor --listen` runs there, the clock and UDP. If the endpoint is this node
/// and its port is free, the check listens there itself. Blocks for about `longest` per step.
Findings check_endpoint(const net::Endpoint& endpoint, const std::vector<net::Address>& local, Milliseconds longest,
                        const net::Lookup& lookup = net::system_lookup);

/// What a failed connection means and what to change. Pure.
Finding connect_failure_finding(const net::Endpoint& endpoint, const net::Connected& result);
/// The same for the other node's clock being ahead by `ahead_ms`.
Finding clock_finding(const std::string& host, double ahead_ms, double uncertainty_ms);

}  // namespace lockstep::launch
