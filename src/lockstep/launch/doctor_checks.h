#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/launch/doctor_facts.h"
#include "lockstep/launch/doctor_report.h"
#include "lockstep/launch/slurm_environment.h"

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// What the facts mean for a run. Pure. `is_for_several_nodes`: local folders are then worth a warning.
Findings check_node(const NodeFacts& facts, std::string_view lockstep_version, bool is_for_several_nodes);

/// What SLURM's variables say, in a step or a batch script; nothing outside SLURM. `munge_problem`: why munge does not
/// work here, empty when it does.
Findings check_slurm(const Environment& environment, const NodeFacts& facts, std::string_view munge_problem,
                     std::optional<Milliseconds> kill_wait);

/// "1.5 GiB"
std::string bytes_text(uint64_t bytes);

}  // namespace lockstep::launch
