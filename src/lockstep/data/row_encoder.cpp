#include "lockstep/data/row_encoder.h"

#include "lockstep/base/error.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

namespace lockstep::data {
namespace {

/// 2026-01-31T12:00:00, local.
std::string local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return {text, size};
}

/// 1 for tokens whose characters overlap a span. Spans do not overlap and are in order, as are the tokens.
std::vector<uint8_t> overlap(std::span<const text::Span> tokens, std::span<const text::Span> spans) {
  std::vector<uint8_t> marks(tokens.size(), 0);
  size_t next = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    while (next < spans.size() && spans[next].end <= tokens[i].start) ++next;
    marks[i] = next < spans.size() && tokens[i].end > spans[next].start;
  }
  return marks;
}

}  // namespace

struct RowEncoder::Tokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> by_assistant;  ///< empty unless asked for
};

RowEncoder::RowEncoder(const text::Tokenizer& tokenizer, const text::ChatTemplate* chat_template,
                       std::map<std::string, std::string> special_tokens, RowKind kind, LossScope scope)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      special_tokens_(std::move(special_tokens)),
      now_(local_time()),
      kind_(kind),
      scope_(scope) {
  if (is_chat(kind) && chat_template == nullptr) {
    throw Error::data("the rows are of kind {}, but the tokenizer of {} has no chat template. Give one with "
                      "--chat_template_path, or rows of text.", name(kind), tokenizer.folder().string());
  }
  if (!scope.assistant_only) return;
  if (!is_chat(kind)) {
    throw Error::usage("--assistant_only_loss needs rows of messages; the data is of kind {}. Leave it out.",
                       name(kind));
  }
  if (!chat_template->has_generation_blocks()) {
    throw Error::usage("--assistant_only_loss needs a chat template that marks the assistant's turns with "
                       "{{% generation %}} and {{% endgeneration %}}; this one does not, and no other is put in its "
                       "place yet. Give one with --chat_template_path, or rows of prompt and completion.");
  }
}

RowEncoder::Tokens RowEncoder::tokens(const std::string& source, const SftRow& row, bool is_prompt,
                                      std::string_view where) const {
  try {
    if (!is_chat(kind_)) return {tokenizer_.encode(source).ids, {}};
    const text::Rendered rendered =
        chat_template_->render(source, {.tools_json = row.tools,
                                        .extra_json = row.template_kwargs,
                                        .special_tokens = special_tokens_,
                                        .add_generation_prompt = is_prompt,
                                        .now = now_});
    const bool wants_spans = scope_.assistant_only && !is_prompt;
    text::Encoding encoding =
        tokenizer_.encode(rendered.text, {.add_special_tokens = false, .with_offsets = wants_spans});
    Tokens result{std::move(encoding.ids), {}};
    if (wants_spans) result.by_assistant = overlap(encoding.offsets, rendered.assistant_spans);
    return result;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", where, error.what()));
  }
}

EncodedRow RowEncoder::encode(const SftRow& row, std::string_view where) const {
  Tokens joint = tokens(row.full, row, /*is_prompt=*/false, where);
  EncodedRow result;
  result.ids = std::move(joint.ids);
  result.trained.assign(result.ids.size(), 1);

  if (scope_.completion_only) {
    const std::vector<int32_t> prompt = tokens(row.prompt, row, /*is_prompt=*/true, where).ids;
    const auto parting = std::mismatch(prompt.begin(), prompt.end(), result.ids.begin(), result.ids.end()).first;
    const auto common = parting - prompt.begin();
    std::fill_n(result.trained.begin(), common, uint8_t{0});
    if (parting != prompt.end()) {
      result.prompt_mismatch = tokenizer_.decode({parting, prompt.end()}, /*skip_special_tokens=*/false);
    }
  }
  if (scope_.assistant_only) {
    if (std::find(joint.by_assistant.begin(), joint.by_assistant.end(), 1) == joint.by_assistant.end()) {
      throw Error::data("{}: --assistant_only_loss finds no token of the assistant in this row. Add the assistant's "
                        "turn, or remove the row.", where);
    }
    for (size_t i = 0; i < result.trained.size(); ++i) result.trained[i] &= joint.by_assistant[i];
  }
  return result;
}

}  // namespace lockstep::data
