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
  for (const std::string& key : {std::string("messages"), std::string("prompt"), std::string("completion"), text_field}) {
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
constexpr std::array<Refusal, 4> kAlwaysRefused{{
    {"input_ids", "rows of token ids", "Give the rows as text or messages."},
    {"images", "rows with images", "Remove the column to train on the text alone."},
    {"image", "rows with images", "Remove the column to train on the text alone."},
    {"audio", "rows with audio", "Remove the column to train on the text alone."},
}};

/// These are answered when a row has nothing else to train on.
constexpr std::array<Refusal, 4> kRefusedAlone{{
    {"conversations", "rows of conversations",
     "Rename conversations to messages, from to role and value to content; write human as user and gpt as assistant."},
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

/// The column as a JSON array, every message checked.
std::string messages_column(const JsonRow& row, std::string_view column) {
  const JsonValue messages = row.array(column);
  if (messages.size() == 0) {
    throw Error::data("{}: {} is an empty list. Add its messages, or remove this row.", row.where(), column);
  }
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
    case RowKind::Messages: return {"messages", "tools", "chat_template_kwargs"};
    case RowKind::PromptCompletionMessages: return {"prompt", "completion", "tools", "chat_template_kwargs"};
    case RowKind::PromptCompletionText: return {"prompt", "completion"};
    case RowKind::Text: return {format.text_field};
  }
  return {};
}

}  // namespace

std::string_view name(RowKind kind) {
  switch (kind) {
    case RowKind::Messages: return "messages";
    case RowKind::PromptCompletionMessages: return "prompt-completion (messages)";
    case RowKind::PromptCompletionText: return "prompt-completion (text)";
    case RowKind::Text: return "text";
  }
  return {};
}

RowKind row_kind(const JsonRow& row, const std::string& text_field) {
  refuse(row, kAlwaysRefused);
  if (row.has("prompt") && row.has("completion")) {
    const JsonValue prompt = row.at("prompt");
    const JsonValue completion = row.at("completion");
    if (prompt.is_array() != completion.is_array()) {
      throw Error::data("{}: prompt is of type {} and completion of type {}. Both must be strings, or both lists of "
                        "messages.", row.where(), text::name(prompt.kind()), text::name(completion.kind()));
    }
    return prompt.is_array() ? RowKind::PromptCompletionMessages : RowKind::PromptCompletionText;
  }
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
      result.full = messages_column(row, "messages");
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
