#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/metrics/profile_costs.h"

#include <ATen/core/Tensor.h>

namespace lockstep::train {

/// What a thread of the team can do while all of them do the same: the best of several products of 1,024 x 1,024 matrices in
/// `dtype`, and of several additions of one long stream to another. Takes about 0.2 s.
metrics::MachineLimits measure_limits(ThreadTeam& team, at::ScalarType dtype);

}  // namespace lockstep::train
