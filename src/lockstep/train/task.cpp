#include "lockstep/train/task.h"

namespace lockstep::train {

GrainRows rows_of(const UpdatePlan& plan, const data::Grain& grain) {
  GrainRows out;
  for (const int64_t member : grain.members) {
    out.rows.push_back(plan.samples.rows[static_cast<size_t>(member)]);
    out.ordinals.push_back(plan.samples.first_ordinal + static_cast<uint64_t>(member));
  }
  out.num_tokens = grain.num_tokens;
  out.update_tokens = plan.num_tokens;
  return out;
}

}  // namespace lockstep::train
