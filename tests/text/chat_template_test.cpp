#include "lockstep/text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "text/expect_error.h"
#include "text/tokenizer_folders.h"

namespace lockstep::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHi = R"([{"role": "user", "content": "Hi"}])";

std::string render(std::string_view source, std::string_view messages = kHi, const RenderOptions& options = {}) {
  return ChatTemplate(source).render(messages, options).text;
}

/// What came of a template: its text and spans, or the error's words.
struct Outcome {
  std::string text;
  std::vector<Span> spans;
  std::string error;
};

Outcome outcome(const Json& item, const std::string& now) {
  RenderOptions options;
  options.now = now;
  options.extra_json = item.at("extra_json");
  options.special_tokens = item.at("special_tokens").get<std::map<std::string, std::string>>();
  options.add_generation_prompt = item.value("add_generation_prompt", false);
  options.continue_final_message = item.value("continue_final_message", false);
  if (item.contains("tools")) options.tools_json = item.at("tools").dump();
  try {
    const ChatTemplate chat_template(item.at("template").get<std::string>());
    Rendered rendered = chat_template.render(item.at("messages").dump(), options);
    return {std::move(rendered.text), std::move(rendered.assistant_spans), ""};
  } catch (const Error& error) {
    return {"", {}, error.what()};
  }
}

/// tests/data/text/template_cases.json: what transformers renders (see make_template_cases.py).
TEST(ChatTemplate, RendersPythonsWaysAsTransformersDoes) {
  const Json file = read_json(std::filesystem::path(LOCKSTEP_TEST_DATA) / "text/template_cases.json");
  ASSERT_GT(file.at("cases").size(), 50U);
  for (const Json& item : file.at("cases")) {
    SCOPED_TRACE(item.at("name").get<std::string>());
    const Outcome got = outcome(item, file.at("now"));
    if (item.contains("error")) {
      EXPECT_NE(got.error, "") << "transformers refuses: " << item.at("error");
      continue;
    }
    EXPECT_EQ(got.error, "");
    EXPECT_EQ(got.text, item.at("rendered").get<std::string>());
    std::vector<Span> spans;
    for (const Json& span : item.at("spans")) spans.push_back({span[0], span[1]});
    EXPECT_EQ(got.spans, spans);
  }
}

TEST(ChatTemplate, ARefusalCarriesTheTemplatesOwnWords) {
  expect_error(ErrorKind::Data, {"refuses these messages: Roles must alternate!"},
               [] { render("{{ raise_exception('Roles must alternate!') }}"); });
  expect_error(ErrorKind::Data, {"refuses these messages: inside"},
               [] { render("{% macro f() %}{{ raise_exception('inside') }}{% endmacro %}{{ f() }}"); });
}

TEST(ChatTemplate, ASyntaxErrorNamesTheTemplateAndTheLine) {
  expect_error(ErrorKind::Data, {"chat_template.jinja", "line 3", "syntax error"},
               [] { ChatTemplate("a\n\n{% if %}\n", "chat_template.jinja"); });
  expect_error(ErrorKind::Data, {"line 2"}, [] { ChatTemplate("a\n{% generation %}b"); });
  expect_error(ErrorKind::Data, {"line 1"}, [] { ChatTemplate("{% endgeneration %}"); });
  expect_error(ErrorKind::Data, {"line 4"},
               [] { ChatTemplate("{% generation %}\r\nb\r\n{% endgeneration %}\r\n{{ x"); });
}

TEST(ChatTemplate, AFaultWhileRenderingNamesTheLine) {
  expect_error(ErrorKind::Data, {"rendering failed", "line 2"}, [] { render("a\n{{ messages[0].x.y }}"); });
  expect_error(ErrorKind::Data, {"line 1", "no_such_filter"}, [] { render("{{ 1 | no_such_filter }}"); });
}

TEST(ChatTemplate, InputOfAnotherShapeIsRefused) {
  expect_error(ErrorKind::Data, {"messages", "column"}, [] { render("a", "[{]"); });
  expect_error(ErrorKind::Data, {"messages: expected a JSON array, got map"}, [] { render("a", "{}"); });
  expect_error(ErrorKind::Data, {"messages[1]: expected a JSON object, got number"}, [] { render("a", "[{}, 2]"); });
  expect_error(ErrorKind::Data, {"template arguments: expected a JSON object"},
               [] { render("a", kHi, {.extra_json = "[]"}); });
  expect_error(ErrorKind::Data, {"messages cannot be given"},
               [] { render("a", kHi, {.extra_json = R"({"messages": []})"}); });
  expect_error(ErrorKind::Data, {"beyond 128 bits"},
               [] { render("a", R"([{"x": 340282366920938463463374607431768211456}])"); });
  expect_error(ErrorKind::Data, {"date \"yesterday\""}, [] { render("a", kHi, {.now = "yesterday"}); });
  expect_error(ErrorKind::Data, {"not valid UTF-8 at byte 0"}, [] { ChatTemplate("\xff"); });
  expect_error(ErrorKind::Data, {"not valid UTF-8"}, [] { render("a", "[{\"a\": \"\xff\"}]"); });
}

TEST(ChatTemplate, DeepJsonIsAnErrorAndNoCrash) {
  for (const size_t depth : {size_t{200}, size_t{100000}}) {
    const std::string deep = "[{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + "}]";
    expect_error(ErrorKind::Data, {"messages"}, [&] { render("a", deep); });
  }
}

TEST(ChatTemplate, TheMarksOfGenerationBlocksAreRefusedInInput) {
  const std::string_view marked = "{% generation %}{{ messages[0].content }}{% endgeneration %}";
  for (const char* text : {"\uFDD0", "a\uFDD1", "\\ufdd0"}) {
    const std::string messages = std::string(R"([{"content": ")") + text + "\"}]";
    expect_error(ErrorKind::Data, {"messages", "U+FDD0"}, [&] { render(marked, messages); });
    EXPECT_NO_THROW(render("{{ messages[0].content }}", messages)) << "no blocks, no marks";
  }
}

TEST(ChatTemplate, KnowsWhetherItHasGenerationBlocks) {
  EXPECT_TRUE(ChatTemplate("{%- generation -%}a{% endgeneration %}").has_generation_blocks());
  EXPECT_FALSE(ChatTemplate("{{ '{% generation %}' }}").has_generation_blocks());
  EXPECT_FALSE(ChatTemplate("{# {% generation %} #}").has_generation_blocks());
}

TEST(ChatTemplate, AGenerationPromptExcludesAContinuedMessage) {
  expect_error(ErrorKind::Data, {"generation prompt"}, [] {
    render("{{ messages[0].content }}", kHi, {.add_generation_prompt = true, .continue_final_message = true});
  });
}

TEST(ChatTemplate, WithoutAFixedDateTodayIsShown) {
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}"), "4");
  expect_error(ErrorKind::Data, {"strftime_now"}, [] { render("{{ strftime_now('%!') }}"); });
}

TEST(ChatTemplate, OneHandleServesSeveralThreadsAtOnce) {
  const ChatTemplate chat_template(
      "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}");
  std::vector<int> num_right(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < num_right.size(); ++t) {
    threads.emplace_back([&, t] {
      const std::string text(t + 1, 'x');
      for (int i = 0; i < 50; ++i) {
        const Rendered rendered = chat_template.render("[{\"content\": \"" + text + "\"}]");
        const std::vector<Span> whole = {{0, static_cast<int64_t>(t + 1)}};
        if (rendered.text == text && rendered.assistant_spans == whole) ++num_right[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : num_right) EXPECT_EQ(count, 50);
}

}  // namespace
}  // namespace lockstep::text
