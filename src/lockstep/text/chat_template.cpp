#include "lockstep/text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/text/bridge.h"

namespace lockstep::text {

namespace {

using detail::BridgeString;
using detail::optional_to_bridge;
using detail::to_bridge;

struct FreeRendered {
  void operator()(lsb_rendered* rendered) const { lsb_rendered_free(rendered); }
};

/// `doing`: "compiling" or "rendering".
Error to_error(int32_t code, const char* doing, const std::string& origin, const std::string& words) {
  switch (code) {
    case LSB_RAISED:
      return Error::data("{} refuses these messages: {}", origin, words);
    case LSB_TEMPLATE:
      return Error::data("{}: {} failed at {}. Correct the template, or the messages where they lack what it reads.",
                         origin, doing, words);
    case LSB_INVALID:
      return Error::data("{} cannot be used: {}.", origin, words);
    default:
      return Error::internal("{}: {}: {}", origin, doing, words);
  }
}

}  // namespace

void ChatTemplate::Free::operator()(lsb_template* handle) const { lsb_template_free(handle); }

ChatTemplate::ChatTemplate(std::string_view source, std::string origin) : source_(source), origin_(std::move(origin)) {
  lsb_template* raw = nullptr;
  BridgeString error;
  const int32_t code = lsb_template_new(to_bridge(source), &raw, error.out());
  handle_.reset(raw);
  if (code != LSB_OK) throw to_error(code, "compiling", origin_, error.str());
}

Rendered ChatTemplate::render(std::string_view messages_json, const RenderOptions& options) const {
  const std::string special_tokens = 
      nlohmann::json(options.special_tokens).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  lsb_render_input input{};
  input.messages = to_bridge(messages_json);
  input.tools_or_null = optional_to_bridge(options.tools_json);
  input.extra_or_null = optional_to_bridge(options.extra_json);
  input.special_tokens_or_null = to_bridge(special_tokens);
  input.now_or_null = optional_to_bridge(options.now);
  input.add_generation_prompt = options.add_generation_prompt;
  input.continue_final_message = options.continue_final_message;

  lsb_rendered* raw = nullptr;
  BridgeString error;
  const int32_t code = lsb_template_render(handle_.get(), &input, &raw, error.out());
  const std::unique_ptr<lsb_rendered, FreeRendered> rendered(raw);
  if (code != LSB_OK) throw to_error(code, "rendering", origin_, error.str());

  Rendered result{std::string(detail::view(lsb_rendered_text(raw))), {}};
  const lsb_span* spans = lsb_rendered_spans(raw);
  for (size_t i = 0; i < lsb_rendered_num_spans(raw); ++i) {
    result.assistant_spans.push_back({static_cast<int64_t>(spans[i].start), static_cast<int64_t>(spans[i].end)});
  }
  return result;
}

bool ChatTemplate::has_generation_blocks() const { return lsb_template_has_generation(handle_.get()); }

}  // namespace lockstep::text
