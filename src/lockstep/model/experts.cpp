#include "lockstep/model/experts.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/experts.h"
#include "lockstep/kernels/glu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

namespace lockstep::model {
namespace {

using at::Tensor;
using tensor::GradSink;
using tensor::ParamStore;

/// use(pointer) to the values of a float32 or float64 tensor.
template <class Use>
void with_values(const Tensor& x, Use use) {
  if (x.scalar_type() == at::kDouble) return use(x.mutable_data_ptr<double>());
  use(x.mutable_data_ptr<float>());
}

/// Position in S of each token's choices, [T * per_token].
std::vector<int64_t> slots_of(const std::vector<int32_t>& chosen, const std::vector<int64_t>& starts) {
  std::vector<int64_t> next(starts.begin(), starts.end() - 1), slots;
  slots.reserve(chosen.size());
  for (const int32_t expert : chosen) slots.push_back(next[static_cast<size_t>(expert)]++);
  return slots;
}

/// The sum of a token's chosen probabilities, by which they are divided; 1 where they are taken as they are.
template <class A>
A divisor_of(const A* p, const int32_t* chosen, int64_t count, bool normalise) {
  if (!normalise) return 1;
  A sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += p[chosen[k]];
  return sum;
}

void collect_statistics(const Tensor& probability_TE, const std::vector<int32_t>& chosen, RouterStatistics& out) {
  const int64_t T = probability_TE.size(0);
  const auto E = static_cast<size_t>(probability_TE.size(1));
  out.probability_E.assign(E, 0);
  out.chosen_E.assign(E, 0);
  out.rows = T;
  with_values(probability_TE, [&](const auto* p) {
    for (int64_t t = 0; t < T; ++t, p += E)
      for (size_t e = 0; e < E; ++e) out.probability_E[e] += static_cast<double>(p[e]);
  });
  for (const int32_t expert : chosen) out.chosen_E[static_cast<size_t>(expert)] += 1;
}

struct ExpertRows {
  int64_t first, count;
};
ExpertRows rows_of_expert(const ExpertsSaved& saved, size_t expert) {
  return {saved.starts[expert], saved.starts[expert + 1] - saved.starts[expert]};
}

/// silu(gate) * up, times the shares.
Tensor shared_activation(const ExpertsSaved& saved, size_t expert) {
  const ExpertRows rows = rows_of_expert(saved, expert);
  Tensor h_RM = kernels::swiglu_forward(saved.gate[expert], saved.up[expert]);
  kernels::scale_rows(h_RM, saved.share_S.narrow(0, rows.first, rows.count));
  return h_RM;
}

/// The gradient of the probabilities from that of the shares.
Tensor probability_gradient(const Tensor& dshare_S, const ExpertsSaved& saved, const ExpertsConfig& config,
                            const std::vector<double>& slope_E) {
  const int64_t T = saved.probability_TE.size(0), E = config.count, count = config.per_token;
  const std::vector<int32_t> chosen = kernels::largest_of_rows(saved.probability_TE, count);
  const std::vector<int64_t> slots = slots_of(chosen, saved.starts);
  Tensor dp_TE = at::zeros(saved.probability_TE.sizes(), saved.probability_TE.options());
  with_values(dp_TE, [&]<class A>(A* dp) {
    const A* p = saved.probability_TE.const_data_ptr<A>();
    const A* share = saved.share_S.const_data_ptr<A>();
    const A* dshare = dshare_S.const_data_ptr<A>();
    for (int64_t t = 0; t < T; ++t, dp += E, p += E) {
      const int32_t* mine = chosen.data() + t * count;
      const int64_t* slot = slots.data() + t * count;
      const A divisor = divisor_of(p, mine, count, config.normalise);
      A mean = 0;
      for (int64_t k = 0; config.normalise && k < count; ++k) mean += dshare[slot[k]] * share[slot[k]];
      for (int64_t k = 0; k < count; ++k) dp[mine[k]] = (dshare[slot[k]] - mean) / divisor;
      for (size_t e = 0; e < slope_E.size(); ++e) dp[e] += static_cast<A>(slope_E[e]);
    }
  });
  return dp_TE;
}

}  // namespace

void RouterStatistics::add(const RouterStatistics& other) {
  if (other.rows == 0) return;
  if (rows == 0) {
    *this = other;
    return;
  }
  for (size_t e = 0; e < probability_E.size(); ++e) {
    probability_E[e] += other.probability_E[e];
    chosen_E[e] += other.chosen_E[e];
  }
  rows += other.rows;
}

double RouterStatistics::loss() const {
  double sum = 0;
  for (size_t e = 0; e < probability_E.size(); ++e) sum += chosen_E[e] * probability_E[e];
  const auto count = static_cast<double>(rows);
  return rows == 0 ? 0 : static_cast<double>(probability_E.size()) * (sum / count) / count;
}

std::vector<double> RouterStatistics::slope(double weight) const {
  std::vector<double> out;
  const auto count = static_cast<double>(rows);
  for (const double chosen : chosen_E) out.push_back(weight * static_cast<double>(chosen_E.size()) * (chosen / count) / count);
  return out;
}

void experts_enter(const ParamStore& params, const ExpertsIds& ids, const ExpertsConfig& config, const Tensor& y_TH,
                   ExpertsSaved& saved, RouterStatistics& statistics) {
  const int64_t T = y_TH.size(0), S = T * config.per_token;
  const auto E = static_cast<size_t>(config.count);
  saved.probability_TE = kernels::router_softmax(project(params, Linear{ids.router}, y_TH));
  const std::vector<int32_t> chosen = kernels::largest_of_rows(saved.probability_TE, config.per_token);
  collect_statistics(saved.probability_TE, chosen, statistics);

  saved.starts.assign(E + 1, 0);
  for (size_t e = 0; e < E; ++e) saved.starts[e + 1] = saved.starts[e] + static_cast<int64_t>(statistics.chosen_E[e]);
  saved.share_S = at::empty({S}, saved.probability_TE.options());
  saved.row_S = at::empty({S}, at::kLong);
  const std::vector<int64_t> slots = slots_of(chosen, saved.starts);
  with_values(saved.share_S, [&]<class A>(A* share) {
    const A* p = saved.probability_TE.const_data_ptr<A>();
    for (int64_t t = 0; t < T; ++t, p += E) {
      const int32_t* mine = chosen.data() + t * config.per_token;
      const A divisor = divisor_of(p, mine, config.per_token, config.normalise);
      for (int64_t k = 0; k < config.per_token; ++k) {
        const int64_t slot = slots[static_cast<size_t>(t * config.per_token + k)];
        share[slot] = p[mine[k]] / divisor;
        saved.row_S.mutable_data_ptr<int64_t>()[slot] = t;
      }
    }
  });
  saved.gate.assign(E, {});
  saved.up.assign(E, {});
  for (size_t e = 0; e < E; ++e) {
    const ExpertRows rows = rows_of_expert(saved, e);
    if (rows.count == 0) continue;
    const Tensor y_RH = kernels::gather_rows(y_TH, saved.row_S.narrow(0, rows.first, rows.count));
    saved.gate[e] = project(params, ids.gate[e], y_RH);
    saved.up[e] = project(params, ids.up[e], y_RH);
  }
}

Tensor experts_leave(const ParamStore& params, const ExpertsIds& ids, int64_t hidden_size, const ExpertsSaved& saved) {
  Tensor out_TH = at::zeros({saved.probability_TE.size(0), hidden_size}, saved.probability_TE.options());
  for (size_t e = 0; e < saved.gate.size(); ++e) {
    const ExpertRows rows = rows_of_expert(saved, e);
    if (rows.count == 0) continue;
    kernels::add_rows_into(out_TH, saved.row_S.narrow(0, rows.first, rows.count),
                           project(params, ids.down[e], shared_activation(saved, e)));
  }
  return out_TH;
}

Tensor experts_backward(const ParamStore& params, const ExpertsIds& ids, const ExpertsConfig& config, const Tensor& dout_TH,
                        const Tensor& y_TH, ExpertsSaved& saved, const std::vector<double>& slope_E, GradSink& sink) {
  Tensor dy_TH = at::zeros(y_TH.sizes(), saved.probability_TE.options());
  const Tensor dshare_S = at::empty(saved.share_S.sizes(), saved.share_S.options());
  for (size_t e = 0; e < saved.gate.size(); ++e) {
    const ExpertRows rows = rows_of_expert(saved, e);
    if (rows.count == 0) continue;
    const Tensor row_R = saved.row_S.narrow(0, rows.first, rows.count);
    const Tensor dout_RH = kernels::gather_rows(dout_TH, row_R);
    project_backward(ids.down[e], dout_RH, shared_activation(saved, e), sink);
    Tensor dh_RM = input_gradient(params, ids.down[e], dout_RH);
    const Tensor h_RM = kernels::swiglu_forward(saved.gate[e], saved.up[e]);
    dshare_S.narrow(0, rows.first, rows.count).copy_(kernels::row_dots(dh_RM, h_RM));
    kernels::scale_rows(dh_RM, saved.share_S.narrow(0, rows.first, rows.count));
    const auto d = kernels::swiglu_backward(dh_RM, saved.gate[e], saved.up[e]);
    saved.gate[e].reset();
    saved.up[e].reset();
    const Tensor y_RH = kernels::gather_rows(y_TH, row_R);
    project_backward(ids.gate[e], d.dgate_TM, y_RH, sink);
    project_backward(ids.up[e], d.dup_TM, y_RH, sink);
    kernels::add_rows_into(dy_TH, row_R, input_gradient(params, ids.gate[e], d.dgate_TM));
    kernels::add_rows_into(dy_TH, row_R, input_gradient(params, ids.up[e], d.dup_TM));
  }
  const Tensor dlogits_TE = kernels::router_softmax_backward(probability_gradient(dshare_S, saved, config, slope_E),
                                                             saved.probability_TE, y_TH.scalar_type());
  add_weight_gradient(ids.router, dlogits_TE, y_TH, sink);
  kernels::add_into(dy_TH, kernels::linear_backward_input(dlogits_TE, params.weight(ids.router)));
  return dy_TH;
}

}  // namespace lockstep::model
