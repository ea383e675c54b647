#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/tensor/exact.h"
#include "lockstep/tensor/grad_sink.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep::tensor {

enum class Reduction {
  Exact,    ///< int64 sums: the law holds
  Float32,  ///< plain float sums in arrival order: the ordinary fast path, layouts differ in the last bits
};

/// The gradients of one update on this process: one flat buffer per segment, int64 or float32.
/// add(), add_rows(), add_product() and flags() are thread-safe; the rest, if not said otherwise, is for one thread
/// while nobody adds.
///
/// Locks guard stripes of 16 pieces. A thread that finds a stripe taken goes on with another and comes back: the order
/// of exact sums does not matter. A piece is filled or cleared by its first contribution, so begin_update() does not
/// walk through memory.
class GradAccumulator : public GradSink {
 public:
  GradAccumulator(const ParamLayout& layout, Reduction reduction, int num_shards);
  /// With sums that other processes see: `of_ranks` holds num_bytes() zeros (at::kByte) of each rank, `rank` is this one.
  GradAccumulator(const ParamLayout& layout, Reduction reduction, int num_shards, const std::vector<at::Tensor>& of_ranks,
                  int rank);
  static int64_t num_bytes(const ParamLayout& layout, Reduction reduction, int num_shards);
  ~GradAccumulator() override;

  /// Clears sums and flags. `scale_bits[id]`: the s of each parameter. `num_contributions[id]`: an upper bound of the
  /// contributions to any element over all processes, known from the plan (at least 1).
  void begin_update(std::span<const int> scale_bits, std::span<const int64_t> num_contributions);

  void add(ParamId id, const at::Tensor& grad) override;
  void add_rows(ParamId id, const at::Tensor& rows, const at::Tensor& grad) override;
  /// bfloat16: by token_product(), never rounded to bfloat16.
  bool add_product(ParamId id, const at::Tensor& dy_TO, const at::Tensor& x_TI) override;

  Reduction reduction() const { return reduction_; }
  /// Flat, padded_elements long: int64 (Exact) or float32. What got no contribution, and the padding, is zero.
  at::Tensor& segment(int index);
  /// Float32 sums have no range: there the flag says only that a contribution was not finite.
  ExactFlags flags(ParamId id) const;
  int scale_bits(ParamId id) const { return scale_bits_[static_cast<size_t>(id)]; }

  bool is_shared() const { return is_shared_; }
  /// The sums over all ranks of a piece's first room.size() elements as float32 gradients, read where they lie; from then on
  /// they are what gradient() gives. Needs shared sums; nobody adds on any rank, and no two ask for the same piece before
  /// the next begin_update(). Float sums are in rank order. Thread-safe.
  std::span<const float> sum_over_ranks(int segment, int64_t piece, std::span<float> room);

  /// Clears what got no contribution, as segment() does, on the threads of `team`.
  void clear_rest(ThreadTeam& team);
  /// The sums of a piece's first room.size() elements as float32 gradients: in `room`, or where they lie. Zeros when the
  /// piece got no contribution; that reads and clears no sums. Thread-safe, as long as nobody adds.
  std::span<const float> gradient(int segment, int64_t piece, std::span<float> room) const;

 private:
  struct State;
  /// Elements [begin, end) of a segment get `values` (at::kFloat, kBFloat16, kHalf or kDouble), piece by piece.
  ExactFlags add_range(ParamId id, int64_t begin, int64_t end, at::ScalarType dtype, const char* values);
  /// The same, stripe by stripe, waiting for each.
  ExactFlags add_in_stripes(ParamId id, int64_t begin, int64_t end, at::ScalarType dtype, const char* values);
  void note(ParamId id, ExactFlags flags);
  /// Clears the piece if this is its first contribution, unless that one is going to fill it; returns whether it must.
  /// The caller holds the stripe.
  bool open_piece(int segment, int64_t piece, bool to_be_filled);
  /// Before the first write to shared sums: small pages could only be copied together afterwards.
  void take_huge_page_of(int segment, int64_t piece);
  char* piece_bytes(int segment, int64_t piece) const;
  /// The sums of all ranks of a whole piece. False, and nothing written, when none got a contribution.
  template <class T>
  bool add_up_ranks(int segment, int64_t piece, std::span<T> sums) const;
  /// Clears those of pieces [begin, end) that got no contribution. The caller holds their stripes, or nobody adds.
  void open_pieces(int segment, int64_t begin, int64_t end);

  const ParamLayout* layout_;
  Reduction reduction_;
  bool is_shared_ = false;
  std::vector<at::Tensor> segments_;
  std::vector<int> scale_bits_;
  std::vector<double> limits_;
  std::unique_ptr<State> state_;  ///< locks, which pieces are open, flags, what other ranks have
};

}  // namespace lockstep::tensor
