#pragma once

#include "lockstep/net/address.h"
#include "lockstep/net/listen.h"
#include "lockstep/net/resolve.h"

#include <optional>
#include <string>
#include <vector>

namespace lockstep::rendezvous {

/// What is known when an agent asks whether the coordinator is to live in it.
struct HostQuestion {
  net::Endpoint endpoint = {};
  net::Resolved resolved = {};                        ///< of the endpoint
  std::vector<net::Address> local_addresses = {};     ///< net::local_addresses()
  std::string host_name = {};                         ///< gethostname
  std::optional<bool> is_host = {};                   ///< --rdzv_conf is_host
};

struct HostAnswer {
  bool host = false;
  std::string reason = {};  ///< for people
};

/// is_host decides where it is given. Else addresses are compared, not names: the endpoint is this host when one of its
/// addresses is loopback or an interface's here. Only where the endpoint's name cannot be resolved here, it is compared
/// with this host's name (with or without domain), since a host often cannot look up itself.
HostAnswer should_host(const HostQuestion& question);

/// Takes the endpoint's port on all addresses. Absent when it is in use: by another launcher of this host that is the
/// coordinator already, as a rule, so become its client; or by a job that is just ending, so try again between attempts to
/// reach somebody there (AgentLink::Options::before_attempt). Throws Error{Environment} where it cannot be had otherwise.
std::optional<net::ListenSocket> try_to_host(const HostQuestion& question);

}  // namespace lockstep::rendezvous
