#pragma once

#include <lockstep_bridge.h>

#include <string>
#include <string_view>

namespace lockstep::text::detail {

/// A text on its way to the bridge. Even an empty one has a pointer: null means "left out" there.
inline lsb_text to_bridge(std::string_view text) {
  static constexpr uint8_t kNothing = 0;
  return {text.data() == nullptr ? &kNothing : reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

inline lsb_text optional_to_bridge(std::string_view text) {
  return text.empty() ? lsb_text{nullptr, 0} : to_bridge(text);
}

inline std::string_view view(lsb_text text) { return {reinterpret_cast<const char*>(text.data), text.size}; }

/// A text that the bridge hands over, freed with its holder.
class BridgeString {
 public:
  BridgeString() = default;
  BridgeString(const BridgeString&) = delete;
  BridgeString& operator=(const BridgeString&) = delete;
  ~BridgeString() { lsb_string_free(text_); }

  lsb_string* out() { return &text_; }
  std::string str() const {
    return text_.data == nullptr ? std::string() : std::string(reinterpret_cast<const char*>(text_.data), text_.size);
  }

 private:
  lsb_string text_{nullptr, 0};
};

}  // namespace lockstep::text::detail
