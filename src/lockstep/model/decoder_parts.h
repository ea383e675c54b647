#pragma once

/// What the passes of a decoder's layer share. Inside model/ only.
namespace lockstep::model::detail {

constexpr int kAfterAttention = 0, kAfterMlp = 1;  // places of dropout in a layer

}  // namespace lockstep::model::detail
