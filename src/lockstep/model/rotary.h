#pragma once

#include "lockstep/kernels/rope.h"
#include "lockstep/model/config.h"
#include "lockstep/model/grain_input.h"

#include <ATen/core/Tensor.h>

/// Rotary tables of a decoder. Where the angles depend on a document's length (dynamic, longrope), every document turns by
/// its own length, whatever shares its grain.
namespace lockstep::model {

class Rotary {
 public:
  Rotary() = default;
  /// `local`: of the layers with a window. Tables are float32 (float64 for float64).
  Rotary(const DecoderConfig& config, bool local, int64_t max_positions, at::ScalarType dtype);

  /// The table, and the row of it that each token of the grain takes (int32).
  struct Turn {
    kernels::RopeTable table;
    at::Tensor row_T;
  };
  Turn turn(const GrainInput& grain) const;

 private:
  kernels::RopeTable table_of(int64_t length, int64_t num_positions) const;

  DecoderConfig config_;
  bool local_ = false;
  at::ScalarType dtype_ = at::kFloat;
  int64_t max_positions_ = 0, stable_length_ = 0;
  kernels::RopeTable table_;               ///< of documents up to stable_length_; longrope: then of the longer ones
};

}  // namespace lockstep::model
