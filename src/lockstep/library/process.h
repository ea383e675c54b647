#pragma once

#include "lockstep/comm/communicator.h"
#include "lockstep/launch/worker_environment.h"
#include "lockstep/library/distributed.h"

#include <functional>
#include <memory>

/// The processes of the job, behind distributed.h. Not installed.
namespace lockstep::library {

struct Group {
  launch::WorkerEnvironment environment;
  std::unique_ptr<comm::Communicator> comm;
};

/// What RANK and the like say; a launcher's own link is not this program's.
launch::WorkerEnvironment environment_of_process();
/// Environment of a process that torchrun or something like it started: `environment` without what belongs to lockstep's own
/// workers. Pure. LOCAL_WORLD_SIZE may be absent; then all processes count as local.
launch::WorkerEnvironment parse_process_environment(launch::Environment environment);

/// How the ranks meet. Pure but for the look at the network for this node's address. Throws Error{Usage} for missing
/// variables.
comm::GlooOptions meeting_of(const launch::Environment& environment, const launch::WorkerEnvironment& parsed,
                             const distributed::InitOptions& options);

/// The group of distributed::init(), or nullptr.
Group* group_of_process();
/// The same, joined now if nobody has.
Group& join_group(const distributed::InitOptions& options);
void leave_group();

/// Runs `work` and turns what libtorch and the standard library throw for want of memory or disk into lockstep::Error.
void with_our_errors(const std::function<void()>& work);

}  // namespace lockstep::library
