#include "lockstep/tensor/param_layout.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

namespace lockstep::tensor {
namespace {

std::vector<ParamSpec> small_model() {
  return {
      {.name = "embed", .shape = {100, 64}, .block = 0},             // 6,400 elements: 2 pieces
      {.name = "layer.q", .shape = {64, 64}, .block = 1},            // exactly 1 piece
      {.name = "layer.q_bias", .shape = {64}, .block = 1, .decay = false},
      {.name = "layer.up", .shape = {130, 64}, .block = 1},          // 8,320: 3 pieces
      {.name = "layer.norm", .shape = {64}, .block = 1, .decay = false},
      {.name = "norm", .shape = {64}, .block = 2, .decay = false},
      {.name = "cube", .shape = {2, 3, 4}, .block = 2},
  };
}

TEST(ParamLayout, LaysEveryParameterAtAPieceWithoutOverlap) {
  const ParamLayout layout(small_model());
  EXPECT_EQ(layout.num_params(), 7);
  EXPECT_EQ(layout.num_blocks(), 3);
  EXPECT_EQ(layout.num_segments(), 6);
  EXPECT_EQ(layout.num_elements(), 6400 + 4096 + 64 + 8320 + 64 + 64 + 24);
  for (int segment = 0; segment < layout.num_segments(); ++segment) {
    int64_t next = 0;
    for (const ParamId id : layout.segment(segment).params) {
      EXPECT_EQ(layout.slot(id).segment, segment);
      EXPECT_EQ(layout.slot(id).offset, next);
      EXPECT_EQ(layout.slot(id).offset % kPieceElements, 0);
      EXPECT_EQ(layout.slot(id).numel, layout.spec(id).numel());
      next = layout.slot(id).offset + layout.slot(id).num_pieces() * kPieceElements;
    }
    EXPECT_EQ(layout.segment(segment).num_pieces * kPieceElements, next);
  }
}

TEST(ParamLayout, SeparatesMatricesFromVectorsPerBlock) {
  const ParamLayout layout(small_model());
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const ParamSpec& spec = layout.spec(id);
    const Segment& segment = layout.segment(layout.slot(id).segment);
    EXPECT_EQ(segment.block, spec.block) << spec.name;
    EXPECT_EQ(segment.matrices, spec.is_matrix()) << spec.name;
    EXPECT_EQ(layout.slot(id).segment, 2 * spec.block + (spec.is_matrix() ? 0 : 1)) << spec.name;
  }
  EXPECT_TRUE(layout.segment(1).params.empty());
  EXPECT_EQ(layout.padded_elements(1, 4), 0);
}

TEST(ParamLayout, FindsParametersByName) {
  const ParamLayout layout(small_model());
  EXPECT_EQ(layout.find("layer.up"), 3);
  EXPECT_EQ(layout.find("layer.down"), -1);
}

TEST(ParamLayout, DealsWholePiecesToAnyNumberOfShards) {
  const ParamLayout layout(small_model());
  for (const int num_shards : {1, 2, 3, 4, 8}) {
    for (int segment = 0; segment < layout.num_segments(); ++segment) {
      const int64_t pieces = layout.segment(segment).num_pieces;
      const int64_t share = layout.shard_pieces(segment, num_shards);
      EXPECT_GE(share * num_shards, pieces);
      EXPECT_LT((share - 1) * num_shards, pieces) << "a smaller share would do";
      EXPECT_EQ(layout.padded_elements(segment, num_shards), share * num_shards * kPieceElements);
    }
  }
}

TEST(ParamLayout, KnowsTheParameterOfEveryPiece) {
  const ParamLayout layout(small_model());
  for (int segment = 0; segment < layout.num_segments(); ++segment) {
    std::vector<ParamId> of_piece;
    for (const ParamId id : layout.segment(segment).params) {
      of_piece.insert(of_piece.end(), static_cast<size_t>(layout.slot(id).num_pieces()), id);
    }
    of_piece.insert(of_piece.end(), 5, -1);  // padding
    for (size_t piece = 0; piece < of_piece.size(); ++piece) {
      EXPECT_EQ(layout.param_of_piece(segment, static_cast<int64_t>(piece)), of_piece[piece]);
    }
  }
}

TEST(ParamLayout, RefusesModelsThatContradictThemselves) {
  EXPECT_THROW(ParamLayout({{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}}), Error);
  EXPECT_THROW(ParamLayout({{.name = "a", .shape = {1}, .block = 0}, {.name = "b", .shape = {1}, .block = 2}}), Error);
  EXPECT_THROW(ParamLayout({{.name = "a", .shape = {1}, .block = -1}}), Error);
  EXPECT_THROW(ParamLayout({{.name = "a", .shape = {4, 0}}}), Error);
}

}  // namespace
}  // namespace lockstep::tensor
