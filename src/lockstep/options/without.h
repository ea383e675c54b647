#pragma once

#include "lockstep/options/field.h"

#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::options {

/// A visitor that passes on what a struct says about some of its options only: a command may leave some out, or say
/// something else about them itself.
template <class V>
class Without {
 public:
  Without(V& to, std::vector<std::string_view> keys) : to_(&to), keys_(std::move(keys)) {}
  void group(std::string_view name) { to_->group(name); }
  template <class Member>
  SpecWriter operator()(std::string_view key, Member& member, std::string_view help) {
    for (const std::string_view left_out : keys_) {
      if (key.starts_with(left_out)) return SpecWriter(unused_);
    }
    return (*to_)(key, member, help);
  }

 private:
  V* to_;
  std::vector<std::string_view> keys_;  ///< beginnings of names
  Spec unused_;
};

}  // namespace lockstep::options
