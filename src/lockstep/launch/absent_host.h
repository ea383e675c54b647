#pragma once

#include "lockstep/base/error.h"
#include "lockstep/launch/agent_nodes.h"
#include "lockstep/launch/run_spec.h"
#include "lockstep/rendezvous/hosting.h"

#include <functional>
#include <string>

namespace lockstep::launch {

/// What decides whether the coordinator lives on this node: from the options, else from the endpoint's addresses. Looks a
/// name up, 5 s at most.
rendezvous::HostQuestion host_question(const RunSpec& spec, const MeetingSpec& meeting, const std::string& host_name);

/// This node cannot take part for `error`. Where it is the host of the endpoint, the others wait for it: serves there until
/// all have come or 5 s have passed, and tells whoever comes. Elsewhere, and where the port is taken: returns at once.
/// `say` gets a line before the wait. Throws Error{Environment} where it cannot serve.
void tell_absence(const RunSpec& spec, const MeetingSpec& meeting, const Error& error,
                  const std::function<void(const std::string&)>& say);

}  // namespace lockstep::launch
