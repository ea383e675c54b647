#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep::text {

/// What a model folder says about its tokenizer beside tokenizer.json.
struct TokenizerConfig {
  /// "bos_token" -> "<s>" and so on, for bos, eos, unk, sep, pad, cls and mask; a token given as null is left out.
  /// From tokenizer_config.json; what it does not name comes from special_tokens_map.json.
  std::map<std::string, std::string> special_tokens;

  /// "default", "tool_use", ... -> source. The file chat_template.jinja is the default, those in the folder
  /// additional_chat_templates go by their names; these win over chat_template of tokenizer_config.json (a text, or a
  /// list with names).
  std::map<std::string, std::string> chat_templates;

  /// Nothing where it is absent or, as transformers writes "no limit", 1e30.
  std::optional<int64_t> model_max_length;

  bool truncates_left = false;  ///< truncation_side
};

/// Missing files are empty ones. Throws Error{Data} with the path for a broken one.
/// add_bos_token and add_eos_token are not read: the post-processor in tokenizer.json decides, as with transformers
/// 5.24 (seen on folders where the two disagree).
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

}  // namespace lockstep::text
