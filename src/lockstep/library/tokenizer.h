#pragma once

#include "lockstep/library/api.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct EncodeOptions {
  bool add_special_tokens = true;
  bool truncation = false;                ///< cut from the longer text, to max_length or the tokenizer's own limit
  std::optional<int64_t> max_length = {};  ///< tokens, special ones included; needs `truncation`
};

/// One entry per token.
struct Encoding {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> token_type_ids;    ///< 0, or 1 for the second text of a pair
};

/// A Hugging Face tokenizer (tokenizer.json). Cheap to copy; const calls may come from several threads.
class LOCKSTEP_API Tokenizer {
 public:
  /// `folder`: a model's. Throws Error{Data} when a file is missing or broken.
  static Tokenizer from_pretrained(const std::string& folder);

  /// Texts are UTF-8: Error{Data} names the first bad byte. Error{Usage} for options that contradict each other.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode(std::string_view text, std::string_view text_pair, const EncodeOptions& options = {}) const;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;
  int64_t vocab_size() const;
  /// Nothing where tokenizer_config.json sets no limit.
  std::optional<int64_t> model_max_length() const;

  struct Impl;

 private:
  friend struct TokenizerAccess;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep
