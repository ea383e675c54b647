#include "lockstep/data/sft_row.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace lockstep::data {
namespace {

using text::JsonRow;
using text::JsonValue;

/// The field if it is there and not null.
std::optional<JsonValue> field(const JsonValue& object, std::string_view key) {
  auto found = object.find(key);
  if (found && found->is_null()) found.reset();
  return found;
}

std::vector<std::string> columns_with_values(const JsonValue& object) {
  std::vector<std::string> names = object.fields();
  std::erase_if(names, [&](const std::string& key) { return !field(object, key); });
  return names;
}

std::string listed_columns(const JsonValue& object) {
  const auto names = columns_with_values(object);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

/// Columns that rows are trained on, present but null.
std::vector<std::string> null_columns(const JsonRow& row, const std::string& text_field) {
  std::vector<std::string> names;
  for (const std::string& key : {std::string("messages"), std::string("conversations"), std::string("prompt"),
                                 std::string("completion"), text_field}) {
    const auto found = row.value.find(key);
    const bool is_known = std::find(names.begin(), names.end(), key) != names.end();
    if (found && found->is_null() && !is_known) names.push_back(key);
  }
  return names;
}

/// For messages: a value may be a picture of megabytes.
std::string shortened_json(std::string text) {
  constexpr size_t kShown = 60;
  if (text.size() <= kShown) return text;
  size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a UTF-8 character
  return text.substr(0, end) + " ...";
}

struct Refusal {
  std::string_view column;
  std::string_view what;
  std::string_view remedy;
};

/// These change what a row means, whatever else it has.
constexpr std::array<Refusal, 5> kAlwaysRefused{{
    {"images", "rows with images", "Remove the column to train on the text alone."},
    {"image", "rows with images", "Remove the column to train on the text alone."},
    {"videos", "rows with videos", "Remove the column to train on the text alone."},
    {"video", "rows with videos", "Remove the column to train on the text alone."},
    {"audio", "rows with audio", "Remove the column to train on the text alone."},
}};

/// These are answered when a row has nothing else to train on.
constexpr std::array<Refusal, 3> kRefusedAlone{{
    {"chosen", "preference rows", "To train on the chosen answers alone, rename chosen to completion."},
    {"rejected", "preference rows", "Give rows of prompt and completion."},
    {"completions", "rows of several completions", "Give one row per completion, with prompt and completion."},
}};

void refuse(const JsonRow& row, std::span<const Refusal> refusals) {
  for (const Refusal& refusal : refusals) {
    if (row.has(refusal.column)) {
      throw Error::data("{}: the column {} belongs to {}, which are not there yet. {}", row.where(), refusal.column,
                        refusal.what, refusal.remedy);
    }
  }
}

/// What a template can be expected to print. Parts of a list must be text: pictures need other models.
void check_content(const JsonValue& message, const std::string& place) {
  const auto content = field(message, "content");
  if (!content) {
    constexpr std::array<std::string_view, 4> kInstead{"tool_calls", "reasoning_content", "reasoning", "thinking"};
    const bool has_other =
        std::any_of(kInstead.begin(), kInstead.end(), [&](auto key) { return field(message, key).has_value(); });
    if (!has_other) {
      throw Error::data("{} has {} (found: {}). Each message needs role and content.", place,
                        message.find("content") ? "content null" : "no content", listed_columns(message));
    }
    return;
  }
  if (content->is_string()) return;
  if (!content->is_array()) {
    throw Error::data("{}: content is of type {}, it must be a string.", place, text::name(content->kind()));
  }
  for (size_t i = 0; i < content->size(); ++i) {
    const auto type = field((*content)[i], "type");
    if (!type || !type->is_string() || type->as_string() != "text") {
      throw Error::data("{}: part {} of content is {}, not {{\"type\": \"text\", \"text\": ...}}. Images and audio are "
                        "not there yet: remove such parts, or write the content as one string.", place, i + 1,
                        shortened_json((*content)[i].json()));
    }
  }
}

JsonValue message_list(const JsonRow& row, std::string_view column) {
  JsonValue messages = row.array(column);
  if (messages.size() == 0) {
    throw Error::data("{}: {} is an empty list. Add its messages, or remove this row.", row.where(), column);
  }
  return messages;
}

/// The column as a JSON array, every message checked.
std::string messages_column(const JsonRow& row, std::string_view column) {
  const JsonValue messages = message_list(row, column);
  for (size_t i = 0; i < messages.size(); ++i) {
    const JsonValue message = messages[i];
    const std::string place = fmt::format("{}: message {} of {}", row.where(), i + 1, column);
    if (!message.is_object()) {
      throw Error::data("{} is of type {}, it must be an object with role and content.", place,
                        text::name(message.kind()));
    }
    const auto role = field(message, "role");
    if (!role || !role->is_string()) {
      throw Error::data("{} has no role (found: {}). Each message needs role (user, assistant ...) and content.", place,
                        listed_columns(message));
    }
    check_content(message, place);
  }
  return messages.json();
}

bool is_from_value(const JsonValue& message) { return message.find("from") && message.find("value"); }

/// Of rows that have conversations: whether they are ShareGPT's, by the first message as trl decides it.
RowKind kind_of_conversations(const JsonRow& row) {
  const JsonValue column = row.at("conversations");
  const bool from_value = column.is_array() && column.size() > 0 && is_from_value(column[0]);
  return from_value ? RowKind::Conversations : RowKind::Messages;
}

/// ShareGPT's messages with the keys of all others. Roles keep their names: what "human" means is the template's business, as in trl.
std::string conversations_column(const JsonRow& row, std::string& foreign_role) {
  const JsonValue messages = message_list(row, "conversations");
  for (size_t i = 0; i < messages.size(); ++i) {
    const JsonValue message = messages[i];
    const std::string place = fmt::format("{}: message {} of conversations", row.where(), i + 1);
    if (!message.is_object()) {
      throw Error::data("{} is of type {}, it must be an object with from and value.", place, text::name(message.kind()));
    }
    const auto from = field(message, "from");
    const auto value = field(message, "value");
    if (!from || !from->is_string() || !value) {
      throw Error::data("{} has {} (found: {}). Each message needs from (user, assistant ...) and value, as the first "
                        "message of the data has.", place, from && from->is_string() ? "no value" : "no from",
                        listed_columns(message));
    }
    if (!value->is_string()) {
      throw Error::data("{}: value is of type {}, it must be a string.", place, text::name(value->kind()));
    }
    const std::string& role = from->as_string();
    if (role == "human" || role == "gpt" || role == "bot" || role == "chatgpt") foreign_role = role;
  }
  return messages.json_with_renamed_keys({{"from", "role"}, {"value", "content"}});
}

/// A mask of zeros and ones beside the token ids.
std::vector<int64_t> integers_beside_ids(const JsonRow& row, std::string_view column, size_t num_ids) {
  std::vector<int64_t> values = row.integers(column);
  if (values.size() == num_ids) return values;
  throw Error::data("{}: {} has {} items and input_ids {}. They must be as long as each other.", row.where(), column,
                    values.size(), num_ids);
}

void apply_mask(const JsonRow& row, std::string_view column, std::vector<uint8_t>& trained) {
  const std::vector<int64_t> mask = integers_beside_ids(row, column, trained.size());
  for (size_t i = 0; i < mask.size(); ++i) trained[i] = static_cast<uint8_t>(trained[i] != 0 && mask[i] != 0);
}

std::vector<uint8_t> marks_of_labels(const JsonRow& row, std::span<const int32_t> ids) {
  constexpr int64_t kNoLabel = -100;
  const std::vector<int64_t> labels = integers_beside_ids(row, "labels", ids.size());
  std::vector<uint8_t> trained(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (labels[i] != kNoLabel && labels[i] != ids[i]) {
      throw Error::data("{}: item {} of labels is {}; it must be the token of input_ids there ({}), or -100 where nothing is "
                        "trained. Labels that are shifted already or other than the tokens are not there yet: leave the "
                        "column out, or give completion_mask.", row.where(), i + 1, labels[i], ids[i]);
    }
    trained[i] = labels[i] != kNoLabel;
  }
  return trained;
}

/// labels as they are; else all tokens that assistant_masks and, if asked for, completion_mask allow.
void read_tokens(const JsonRow& row, bool completion_only, SftRow& result) {
  for (const int64_t id : row.integers("input_ids")) {
    if (id < 0 || id > INT32_MAX) {
      throw Error::data("{}: input_ids holds {}, which is no token. Tokens are numbers from 0.", row.where(), id);
    }
    result.ids.push_back(static_cast<int32_t>(id));
  }
  if (row.has("labels")) {
    result.trained = marks_of_labels(row, result.ids);
    return;
  }
  result.trained.assign(result.ids.size(), 1);
  if (row.has("assistant_masks")) apply_mask(row, "assistant_masks", result.trained);
  if (!completion_only) return;
  if (!row.has("completion_mask")) {
    throw Error::data("{}: --completion_only_loss needs completion_mask or labels beside input_ids (found: {}). Add one, or "
                      "leave the option out.", row.where(), listed_columns(row.value));
  }
  apply_mask(row, "completion_mask", result.trained);
}

/// Two JSON arrays, neither empty, as one.
std::string joined(std::string_view first, std::string_view second) {
  first.remove_suffix(1);
  second.remove_prefix(1);
  return fmt::format("{},{}", first, second);
}

std::string with_eos(std::string text, const std::string& eos_token) {
  if (!text.ends_with(eos_token)) text += eos_token;
  return text;
}

/// A list, or a string that holds one in JSON, as trl takes it. Empty for none.
std::string tools_column(const JsonRow& row) {
  auto tools = field(row.value, "tools");
  if (tools && tools->is_string()) {
    if (tools->as_string().empty()) return {};
    tools = JsonValue::parse(tools->as_string(), row.where() + ": tools, a string that must hold JSON");
  }
  if (!tools || tools->is_null()) return {};
  if (!tools->is_array()) {
    throw Error::data("{}: tools is of type {}, it must be a list, or a string that holds a list in JSON.", row.where(),
                      text::name(tools->kind()));
  }
  return tools->size() == 0 ? std::string() : tools->json();
}

std::string template_kwargs_column(const JsonRow& row) {
  const auto kwargs = field(row.value, "chat_template_kwargs");
  if (!kwargs) return {};
  if (!kwargs->is_object()) {
    throw Error::data("{}: chat_template_kwargs is of type {}, it must be an object.", row.where(),
                      text::name(kwargs->kind()));
  }
  return kwargs->json();
}

std::vector<std::string> used_columns(const RowFormat& format) {
  switch (format.kind) {
    case RowKind::Messages:
    case RowKind::Conversations: return {"messages", "conversations", "tools", "chat_template_kwargs"};
    case RowKind::PromptCompletionMessages: return {"prompt", "completion", "tools", "chat_template_kwargs"};
    case RowKind::PromptCompletionText: return {"prompt", "completion"};
    case RowKind::Text: return {format.text_field};
    case RowKind::Tokens:
      if (format.completion_only) return {"input_ids", "labels", "assistant_masks", "attention_mask", "completion_mask"};
      return {"input_ids", "labels", "assistant_masks", "attention_mask"};
  }
  return {};
}

}  // namespace

std::string_view name(RowKind kind) {
  switch (kind) {
    case RowKind::Messages: return "messages";
    case RowKind::Conversations: return "conversations (from, value)";
    case RowKind::PromptCompletionMessages: return "prompt-completion (messages)";
    case RowKind::PromptCompletionText: return "prompt-completion (text)";
    case RowKind::Text: return "text";
    case RowKind::Tokens: return "token ids";
  }
  return {};
}

RowKind row_kind(const JsonRow& row, const std::string& text_field) {
  refuse(row, kAlwaysRefused);
  if (row.has("input_ids")) return RowKind::Tokens;
  if (row.has("prompt") && row.has("completion")) {
    const JsonValue prompt = row.at("prompt");
    const JsonValue completion = row.at("completion");
    if (prompt.is_array() != completion.is_array()) {
      throw Error::data("{}: prompt is of type {} and completion of type {}. Both must be strings, or both lists of "
                        "messages.", row.where(), text::name(prompt.kind()), text::name(completion.kind()));
    }
    return prompt.is_array() ? RowKind::PromptCompletionMessages : RowKind::PromptCompletionText;
  }
  if (row.has("conversations")) return kind_of_conversations(row);
  if (row.has("messages")) return RowKind::Messages;
  if (row.has(text_field)) return RowKind::Text;
  refuse(row, kRefusedAlone);
  if (const auto nulls = null_columns(row, text_field); !nulls.empty()) {
    throw Error::data("{}: no column to train on: the value of {} is null (found: {}). Give it a value, or remove this row.",
                      row.where(), fmt::join(nulls, " and of "), listed_columns(row.value));
  }
  throw Error::data("{}: no column to train on (found: {}; wanted: messages, or prompt and completion, or {}). Rename "
                    "the columns, or name the one that holds the text with --dataset_text_field.",
                    row.where(), listed_columns(row.value), text_field);
}

SftRow parse_row(const JsonRow& row, const RowFormat& format) {
  const RowKind kind = row_kind(row, format.text_field);
  if (kind != format.kind) {
    const auto nulls = null_columns(row, format.text_field);
    throw Error::data("{}: this row is of kind {} (columns: {}{}), but the data is of kind {} by its first row ({}). All "
                      "rows must be of one kind: bring them into one form, or train on one kind at a time.",
                      row.where(), name(kind), listed_columns(row.value),
                      nulls.empty() ? std::string() : fmt::format("; null: {}", fmt::join(nulls, ", ")),
                      name(format.kind), format.decided_at);
  }

  SftRow result;
  switch (kind) {
    case RowKind::Messages:
      result.full = messages_column(row, row.has("conversations") ? "conversations" : "messages");
      break;
    case RowKind::Conversations:
      result.full = conversations_column(row, result.foreign_role);
      break;
    case RowKind::PromptCompletionMessages:
      result.prompt = messages_column(row, "prompt");
      result.full = joined(result.prompt, messages_column(row, "completion"));
      break;
    case RowKind::PromptCompletionText:
      result.prompt = row.string("prompt");
      result.full = result.prompt + with_eos(row.string("completion"), format.eos_token);
      break;
    case RowKind::Text:
      result.full = with_eos(row.string(format.text_field), format.eos_token);
      break;
    case RowKind::Tokens:
      read_tokens(row, format.completion_only, result);
      break;
  }
  if (is_chat(kind)) {
    result.tools = tools_column(row);
    result.template_kwargs = template_kwargs_column(row);
  }
  result.ignored_columns = columns_with_values(row.value);
  std::erase_if(result.ignored_columns, [used = used_columns(format)](const std::string& column) {
    return std::find(used.begin(), used.end(), column) != used.end();
  });
  return result;
}

}  // namespace lockstep::data
