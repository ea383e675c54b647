#pragma once

#include "lockstep/launch/options.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::recipes {

/// What `lockstep replay` can be told beside the run: everything else is as the run had it. visit() is written in the words
/// of options/field.h.
struct ReplayOptions {
  std::optional<int64_t> update;
  std::optional<std::string> checkpoint;
  launch::LaunchOptions launch;

  template <class V>
  void visit(V& v) {
    v.group("Replay");
    v("update", update, "The last update to compute again.").unset("the last one logged").at_least(1);
    v("checkpoint", checkpoint, "Where to start: a checkpoint's folder, or start: the beginning of the run.")
        .unit("path").unset("the newest before the update");
    launch.visit(v);
  }
};

}  // namespace lockstep::recipes
