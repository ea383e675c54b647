#pragma once

namespace lockstep::model {

/// What a layer's forward leaves for its backward.
enum class Keep {
  All,        ///< fastest backward
  InputOnly,  ///< the layer's forward runs again in its backward: same kernels, same bits
  Nothing,    ///< evaluation: no backward follows
};

}  // namespace lockstep::model
