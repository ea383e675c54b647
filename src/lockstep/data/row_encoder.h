#pragma once

#include "lockstep/data/examples.h"
#include "lockstep/data/sft_row.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// What is trained on; both together mean the tokens that both allow.
struct LossScope {
  bool completion_only = false;
  bool assistant_only = false;
};

struct EncodedRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;       ///< same length
  std::optional<std::string> prompt_mismatch;  ///< the end of the prompt that the joint text tokenizes otherwise
};

/// From a checked row to token ids and mask, as trl 1.16 does it: text rows with the tokenizer's special tokens; chats
/// rendered by the template and encoded without (the template writes its own BOS). The trained part of a row with a
/// prompt begins after the longest common prefix of the prompt's ids (chats: rendered with the generation prompt) and
/// the joint ids. Const methods may be called from several threads at once; holds references to its arguments.
class RowEncoder {
 public:
  /// `special_tokens` are what chat templates see. Chats need `chat_template`, and one with generation blocks for
  /// assistant_only: Error{Data} and Error{Usage} say so.
  RowEncoder(const text::Tokenizer& tokenizer, const text::ChatTemplate* chat_template,
             std::map<std::string, std::string> special_tokens, RowKind kind, LossScope scope);

  /// `where` opens the message of Error{Data}: the template refuses the messages, or assistant_only finds no turn.
  EncodedRow encode(const SftRow& row, std::string_view where) const;

 private:
  struct Tokens;
  Tokens tokens(const std::string& source, const SftRow& row, bool is_prompt, std::string_view where) const;

  const text::Tokenizer& tokenizer_;
  const text::ChatTemplate* chat_template_;
  std::map<std::string, std::string> special_tokens_;
  std::string now_;  ///< one date for all rows of templates that print it
  RowKind kind_;
  LossScope scope_;
};

}  // namespace lockstep::data
