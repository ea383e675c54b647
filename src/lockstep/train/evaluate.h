#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/train/task.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::train {

/// Of all rows of a task's data, each counted once. The same on every rank and for every layout: the cut into grains
/// depends on the data and the cut's options alone, sums are exact, outputs are in the order of the data.
struct Evaluation {
  loss::LossSums sums;
  at::Tensor outputs;              ///< float32 [rows, output_width()]; undefined when the width is 0
  int64_t num_rows = 0;
  int64_t num_tokens = 0;
  double seconds = 0;              ///< of this rank

  double router_coefficient = 0;

  /// With the router loss, where it is trained.
  double loss() const {
    return sums.nll.value() / static_cast<double>(sums.num_targets) + router_coefficient * router_loss();
  }
  /// Weighted by tokens.
  double router_loss() const { return sums.router.value() / static_cast<double>(num_tokens); }
  double accuracy() const { return static_cast<double>(sums.num_top1) / static_cast<double>(sums.num_targets); }
  double entropy() const { return sums.entropy.value() / static_cast<double>(sums.num_targets); }
};

/// Collective. `task`: of the evaluation's data, without dropout; `params` has its layout. At least one row.
Evaluation evaluate(const Task& task, const tensor::ParamStore& params, const data::CutOptions& cut,
                    comm::Communicator& comm, ThreadTeam& team);

/// Sums over all ranks. Collective.
loss::LossSums sum_over_ranks(const loss::LossSums& mine, comm::Communicator& comm);

}  // namespace lockstep::train
