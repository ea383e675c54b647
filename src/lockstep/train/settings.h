#pragma once

namespace lockstep::train {

/// Throws Error{Environment} unless the settings that change the bits of a result are those the launcher makes:
/// OMP_NUM_THREADS = MKL_NUM_THREADS = 1, MKL_CBWR = <...>,STRICT, one libtorch thread. Names the variable and value.
void require_bit_stable_settings();

}  // namespace lockstep::train
