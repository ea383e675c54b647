#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::tensor {

/// Elements of the smallest unit of ownership, of the optimizer's kernel and of sums: every tensor begins at a
/// multiple of it, so no piece holds two tensors and no shard boundary cuts a piece.
inline constexpr int64_t kPieceElements = 4096;

using ParamId = int;

/// A named parameter as the model declares it, in the order of the checkpoint's module tree.
struct ParamSpec {
  std::string name;            ///< Hugging Face's name, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  int block = 0;               ///< stage of the model: 0 embedding, 1..L layers, L+1 head
  bool decay = true;           ///< weight decay applies (Hugging Face's two groups)
  bool by_rows = false;        ///< a table whose gradients come row by row: most rows are in few updates, or in none
  /// Matrices are held in the compute dtype for the products; vectors (norms, biases) stay in float32.
  bool is_matrix() const { return shape.size() >= 2; }
  int64_t numel() const;
};

/// The parameters of one block that share a dtype, laid end to end (each at a multiple of kPieceElements).
/// Index: 2 * block for matrices, 2 * block + 1 for vectors. May be empty.
struct Segment {
  int block = 0;
  bool matrices = true;
  std::vector<ParamId> params;
  int64_t num_pieces = 0;      ///< without the padding for shards
  bool by_rows = false;        ///< all params are
};

struct ParamSlot {
  int segment = 0;
  int64_t offset = 0;          ///< elements, a multiple of kPieceElements
  int64_t numel = 0;
  int64_t num_pieces() const { return (numel + kPieceElements - 1) / kPieceElements; }
};

/// Where every parameter lies. Immutable and the same on every process.
class ParamLayout {
 public:
  /// Throws Error{Internal} for a name given twice, an empty dimension or block numbers that leave gaps.
  explicit ParamLayout(std::vector<ParamSpec> specs);

  int num_params() const { return static_cast<int>(specs_.size()); }
  int num_blocks() const { return num_blocks_; }
  int num_segments() const { return static_cast<int>(segments_.size()); }
  const ParamSpec& spec(ParamId id) const { return specs_[static_cast<size_t>(id)]; }
  const ParamSlot& slot(ParamId id) const { return slots_[static_cast<size_t>(id)]; }
  const Segment& segment(int index) const { return segments_[static_cast<size_t>(index)]; }
  /// -1 when absent.
  ParamId find(const std::string& name) const;
  /// Elements over all parameters, padding not counted.
  int64_t num_elements() const;

  /// Pieces of one shard when a segment is dealt to `num_shards` owners in equal, consecutive shares (the last may
  /// reach past the end: that is the padding).
  int64_t shard_pieces(int segment, int num_shards) const;
  /// Elements of a segment's flat buffer, padded so that every shard is whole.
  int64_t padded_elements(int segment, int num_shards) const {
    return shard_pieces(segment, num_shards) * num_shards * kPieceElements;
  }
  /// The parameter that holds piece `piece` of `segment`, or -1 for padding.
  ParamId param_of_piece(int segment, int64_t piece) const;

 private:
  std::vector<ParamSpec> specs_;
  std::vector<ParamSlot> slots_;
  std::vector<Segment> segments_;
  std::unordered_map<std::string, ParamId> ids_;
  int num_blocks_ = 0;
};

}  // namespace lockstep::tensor
