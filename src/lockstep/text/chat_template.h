#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/span.h"

struct lsb_template;  // rust/bridge/include/lockstep_bridge.h

namespace lockstep::text {

struct RenderOptions {
  /// A JSON array of tool descriptions; "" renders as transformers does with tools=None. (An empty array is passed on:
  /// some templates then print their tool preamble, so callers turn it into "", as trl does.)
  std::string tools_json = {};
  /// A JSON object (chat_template_kwargs) whose entries become variables; they win over special_tokens. "" is none.
  std::string extra_json = {};
  /// Tokenizer::special_tokens().
  std::map<std::string, std::string> special_tokens = {};
  bool add_generation_prompt = false;
  /// The text ends with the content of the last message, for a model to go on. Excludes add_generation_prompt.
  bool continue_final_message = false;
  /// What strftime_now() shows, as 2026-01-31T12:00:00; "" is the present local time. Templates that print the date
  /// (Llama 3.1) give other text tomorrow: fix this where a text must come out the same again.
  std::string now = {};
};

struct Rendered {
  std::string text;
  /// The texts of the template's {% generation %} blocks, in the order they end.
  std::vector<Span> assistant_spans;
};

/// A chat template: Jinja source that turns messages into one text. Rendered by minijinja, set up to give what
/// transformers 5.24 gives with jinja2 (rust/bridge/src/template.rs names the two known differences). Move-only;
/// render() may be called from several threads at once.
class ChatTemplate {
 public:
  /// `origin` names the template in errors, e.g. the file it comes from. Throws Error{Data} with the line of a
  /// syntax error.
  explicit ChatTemplate(std::string_view source, std::string origin = "the chat template");

  ChatTemplate(ChatTemplate&&) noexcept = default;
  ChatTemplate& operator=(ChatTemplate&&) noexcept = default;
  ~ChatTemplate() = default;

  /// `messages_json`: a JSON array of objects. As transformers does, entries that are null are dropped first, and
  /// reasoning is offered as reasoning_content and thinking, whichever of the two (or "reasoning") is there.
  /// Throws Error{Data}: with the template's own words where it refuses (raise_exception), else with the line.
  Rendered render(std::string_view messages_json, const RenderOptions& options = {}) const;

  /// Whether the source marks what the assistant wrote; without, assistant_spans is always empty.
  bool has_generation_blocks() const;

  const std::string& source() const { return source_; }

 private:
  struct Free {
    void operator()(lsb_template* handle) const;
  };

  std::string source_;
  std::string origin_;
  std::unique_ptr<lsb_template, Free> handle_;
};

}  // namespace lockstep::text
