#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/span.h"
#include "lockstep/text/tokenizer_config.h"

struct lsb_tokenizer;  // rust/bridge/include/lockstep_bridge.h

namespace lockstep {
class ThreadTeam;
}

namespace lockstep::text {

struct EncodeOptions {
  /// Those that the post-processor of tokenizer.json adds (BOS, [CLS] ... [SEP], ...).
  bool add_special_tokens = true;
  bool with_offsets = false;
  /// Longer encodings are cut to this length as transformers' `truncation=True` does: tokens of the longer text go
  /// first, from the side that tokenizer_config.json names (truncation_side; the end by default); special tokens that
  /// the post-processor adds stay. Error{Data} if these alone are longer.
  std::optional<int64_t> max_length = {};
};

struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;  ///< one per id: 0, or 1 for the second text of a pair
  std::vector<Span> offsets;      ///< one per id, within its own text; empty unless asked for
  int64_t num_cut = 0;            ///< tokens that max_length took away
};

/// A Hugging Face tokenizer (tokenizer.json), computed by the library `tokenizers` itself. Move-only.
/// Const methods may be called from several threads at once. Texts must be UTF-8: Error{Data} names the first bad byte.
class Tokenizer {
 public:
  /// Reads tokenizer.json, whose truncation and padding are ignored as transformers does, and the files of
  /// read_tokenizer_config(). Throws Error{Data} when a file is missing or broken, or when the folder names an eos,
  /// bos or pad token that tokenizer.json does not know.
  static Tokenizer from_folder(const std::filesystem::path& folder);

  Tokenizer(Tokenizer&&) noexcept = default;
  Tokenizer& operator=(Tokenizer&&) noexcept = default;
  ~Tokenizer() = default;

  Encoding encode(std::string_view text, EncodeOptions options = {}) const;
  Encoding encode_pair(std::string_view first, std::string_view second, EncodeOptions options = {}) const;
  /// The same as encode() of each text, in order; the team's threads take one text at a time.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts, EncodeOptions options, ThreadTeam& team) const;

  /// Throws Error{Data} for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  /// Added tokens included, as len(tokenizer) of transformers. A model's embedding may have more rows.
  int32_t vocab_size() const;

  /// Nothing where the folder names no such token.
  std::optional<int32_t> bos_id() const { return special_id("bos_token"); }
  std::optional<int32_t> eos_id() const { return special_id("eos_token"); }
  std::optional<int32_t> pad_id() const { return special_id("pad_token"); }
  std::optional<int32_t> unk_id() const { return special_id("unk_token"); }
  /// eos_id(), or Error{Data} that says how to name one.
  int32_t require_eos_id() const;

  /// "bos_token" -> "<s>", ...: what chat templates see (ChatTemplate's RenderOptions).
  const std::map<std::string, std::string>& special_tokens() const { return config_.special_tokens; }
  std::optional<int64_t> model_max_length() const { return config_.model_max_length; }
  /// The source of the folder's chat template; of several, "tool_use" if there are tools and it exists, else
  /// "default". Nothing when there is none; Error{Data} when there are several and none is the default.
  std::optional<std::string> chat_template(bool with_tools = false) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  struct Free {
    void operator()(lsb_tokenizer* handle) const;
  };

  Tokenizer(std::filesystem::path folder, std::unique_ptr<lsb_tokenizer, Free> handle, TokenizerConfig config);
  void check_special_tokens() const;
  std::optional<int32_t> special_id(const char* name) const;

  std::filesystem::path folder_;
  std::unique_ptr<lsb_tokenizer, Free> handle_;
  TokenizerConfig config_;
};

}  // namespace lockstep::text
