#pragma once

#include "lockstep/model/config.h"
#include "lockstep/model/products.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// A sparse MLP: a router gives each token to a few experts, whose gated MLPs are added by their shares (Jiang et al.,
/// Mixtral of Experts, 2024). No capacity: every chosen pair is computed, expert by expert, tokens in order.
/// Letters: T tokens, E experts, S = T * per_token chosen pairs, sorted by expert and then by token, H hidden.
namespace lockstep::model {

struct ExpertsIds {
  tensor::ParamId router = -1;         ///< [E, H]; -1: the layer's MLP is dense
  std::vector<Linear> gate, up, down;  ///< per expert
};

/// What the load-balancing loss is made of: sums over the tokens of one layer, or of several.
struct RouterStatistics {
  std::vector<double> probability_E;   ///< given to each expert
  std::vector<double> chosen_E;        ///< tokens that chose it
  int64_t rows = 0;                    ///< tokens, once per layer; 0: no sparse layer

  void add(const RouterStatistics& other);
  /// E * sum over experts of (share of the rows that chose it) * (mean probability): transformers'
  /// load_balancing_loss_func without padding (Fedus et al., Switch Transformers, 2021).
  double loss() const;
  /// weight * its derivative by the probability of each expert at any row; the choice is held fixed.
  std::vector<double> slope(double weight) const;
};

struct ExpertsSaved {
  at::Tensor probability_TE;           ///< of the residual stream's dtype, as share_S
  at::Tensor share_S, row_S;           ///< row_S: int64, the token
  std::vector<int64_t> starts;         ///< E + 1 offsets into S
  std::vector<at::Tensor> gate, up;    ///< per expert; undefined where nobody chose it
};

/// Routes the tokens and computes the two products into the experts' width.
void experts_enter(const tensor::ParamStore& params, const ExpertsIds& ids, const ExpertsConfig& config,
                   const at::Tensor& y_TH, ExpertsSaved& saved, RouterStatistics& statistics);
/// What the layer adds to the residual stream, in its dtype.
at::Tensor experts_leave(const tensor::ParamStore& params, const ExpertsIds& ids, int64_t hidden_size, const ExpertsSaved& saved);
/// The gradient of y_TH, in the residual stream's dtype. `slope_E`: of the router loss; empty: none.
at::Tensor experts_backward(const tensor::ParamStore& params, const ExpertsIds& ids, const ExpertsConfig& config,
                            const at::Tensor& dout_TH, const at::Tensor& y_TH, ExpertsSaved& saved,
                            const std::vector<double>& slope_E, tensor::GradSink& sink);

}  // namespace lockstep::model
