#pragma once

#include "lockstep/text/json_lines.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// One row of the user's data, checked and taken apart; no tokens yet.
namespace lockstep::data {

enum class RowKind { Messages, Conversations, PromptCompletionMessages, PromptCompletionText, Text, Tokens };

/// "messages", "conversations (from, value)", "prompt-completion (messages)", "prompt-completion (text)", "text",
/// "token ids".
std::string_view name(RowKind kind);
constexpr bool has_prompt(RowKind kind) {
  return kind == RowKind::PromptCompletionMessages || kind == RowKind::PromptCompletionText;
}
constexpr bool is_chat(RowKind kind) {
  return kind == RowKind::Messages || kind == RowKind::Conversations || kind == RowKind::PromptCompletionMessages;
}
/// Rows that get the eos token and the tokenizer's own special tokens.
constexpr bool is_plain_text(RowKind kind) { return kind == RowKind::PromptCompletionText || kind == RowKind::Text; }

struct SftRow {
  std::string prompt;           ///< kinds with a prompt: its text, or a JSON array of messages
  std::string full;             ///< prompt and completion, the text, or the messages: text or a JSON array
  std::string tools;            ///< chats: JSON for the template, empty if there are none
  std::string template_kwargs;  ///< chats: a JSON object for the template, empty if there is none
  std::vector<int32_t> ids;       ///< rows of token ids alone
  std::vector<uint8_t> trained;   ///< the same; as long as ids
  std::string foreign_role;       ///< conversations: a role that few templates know ("human", "gpt"), or empty
  std::vector<std::string> ignored_columns;
};

/// How the whole data set is read.
struct RowFormat {
  RowKind kind = RowKind::Text;
  std::string text_field = "text";
  std::string decided_at;       ///< "FILE:LINE" of the row that decided the kind
  std::string eos_token;        ///< appended to the text or completion of plain texts, unless there
  bool completion_only = false; ///< token ids: completion_mask counts
};

/// The kind of a row by its columns; columns that are null count as absent. input_ids goes before all, prompt with
/// completion before conversations, these before messages, messages before the text column. Throws Error{Data} with the row's place that names the columns found and
/// wanted, and says of formats of other trainers what to do with them.
RowKind row_kind(const text::JsonRow& row, const std::string& text_field);

/// Throws Error{Data} if the row is of another kind than the data or its columns do not hold what they should.
SftRow parse_row(const text::JsonRow& row, const RowFormat& format);

}  // namespace lockstep::data
