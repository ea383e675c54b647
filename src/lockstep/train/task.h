#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/loss/lm_head.h"
#include "lockstep/model/decoder.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/train/plan.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// What is trained and what a sample is: the trainer knows nothing else of models, data and losses.
namespace lockstep::train {

/// The samples of one grain, in the order they are packed.
struct GrainRows {
  std::vector<int64_t> rows;            ///< of the data
  std::vector<uint64_t> ordinals;       ///< samples consumed by the run before each (keys the randomness)
  int64_t num_tokens = 0;
  int64_t update_tokens = 0;            ///< of all grains of the update
};
GrainRows rows_of(const UpdatePlan& plan, const data::Grain& grain);

/// Where the numbers of a grain stop being finite.
struct NonFiniteReport {
  std::string block;               ///< "embedding", "layer 3", "head", or "gradient of <parameter>"
  std::vector<int64_t> sample_ids;
};

/// Immutable after construction; const functions may be called from many threads, one grain per call, and depend on
/// their arguments alone. `params` has the layout of param_specs().
class Task {
 public:
  virtual ~Task() = default;

  virtual std::vector<tensor::ParamSpec> param_specs() const = 0;
  virtual at::ScalarType compute_dtype() const = 0;
  /// One entry per row of the data.
  virtual const std::vector<SampleSize>& sizes() const = 0;
  /// Scales the cost of a grain.
  virtual CostModel cost_model() const = 0;
  /// Upper bound of the contributions to one element of each parameter in this update (see tensor/exact.h).
  virtual std::vector<int64_t> contributions(const UpdatePlan& plan) const = 0;
  /// Bytes that a grain of so many tokens keeps for its backward.
  virtual int64_t saved_bytes(int64_t num_tokens, model::Keep keep) const = 0;

  /// Calls `read` once for every parameter, from the team's threads, in no order. Returns the stored dtype.
  virtual at::ScalarType load_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                                      const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                                      ThreadTeam& team) const = 0;

  /// Forward and backward of (sum of the losses) / divisor; every weight gradient goes to `sink`. `after_forward` is
  /// called once, when the loss is known.
  virtual loss::LossSums run_grain(const tensor::ParamStore& params, const GrainRows& grain, double divisor,
                                   model::Keep keep, tensor::GradSink& sink,
                                   const std::function<void()>& after_forward) const = 0;
  /// Forward alone, without dropout. Where output_width() is not 0, `outputs` [grain rows, output_width()] gets what the
  /// head said for each row (float32).
  virtual loss::LossSums evaluate_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                        std::span<float> outputs) const = 0;
  /// Numbers per row that the head gives: classes, or targets of a regression; 0 for language models.
  virtual int64_t output_width() const { return 0; }
  /// Whether the sums' entropy and num_top1 mean something.
  virtual bool has_entropy() const { return true; }
  virtual bool has_accuracy() const { return true; }
  /// Weight of the router loss in the loss; 0: there is none.
  virtual double router_coefficient() const { return 0; }
  /// Runs the grain again, looking at every block. Empty when everything is finite.
  virtual std::optional<NonFiniteReport> diagnose_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                                        double divisor) const = 0;
};

}  // namespace lockstep::train
