// Equality with Hugging Face: every folder's expected.json holds what tokenizers 0.23.3 and transformers 5.24 give.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "lockstep/base/error.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "text/tokenizer_folders.h"

namespace lockstep::text {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

class TokenizerGolden : public testing::TestWithParam<TokenizerCase> {
 protected:
  Tokenizer tokenizer_ = Tokenizer::from_folder(GetParam().folder);
  Json expected_ = read_json(GetParam().expected);
};

std::vector<Span> spans(const Json& flat) {
  std::vector<Span> result;
  for (size_t i = 0; i + 1 < flat.size(); i += 2) result.push_back({flat[i], flat[i + 1]});
  return result;
}

TEST_P(TokenizerGolden, EncodesAndDecodesEveryText) {
  ASSERT_FALSE(expected_["texts"].empty());
  for (const Json& item : expected_["texts"]) {
    const auto text = item["text"].get<std::string>();
    SCOPED_TRACE(text);
    const Encoding plain = tokenizer_.encode(text, {.add_special_tokens = false, .with_offsets = true});
    EXPECT_EQ(plain.ids, item["ids"].get<Ids>());
    EXPECT_EQ(plain.offsets, spans(item["offsets"]));
    EXPECT_EQ(tokenizer_.encode(text, {.add_special_tokens = false}).ids, plain.ids) << "without offsets";
    const Encoding special = tokenizer_.encode(text);
    EXPECT_EQ(special.ids, item["ids_with_special"].get<Ids>());
    EXPECT_EQ(tokenizer_.decode(plain.ids, false), item["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_.decode(special.ids, true), item["decoded_skip_special"].get<std::string>());
  }
}

TEST_P(TokenizerGolden, EncodesPairs) {
  ASSERT_FALSE(expected_["pairs"].empty());
  for (const Json& item : expected_["pairs"]) {
    const Encoding pair = tokenizer_.encode_pair(item["first"].get<std::string>(), item["second"].get<std::string>());
    EXPECT_EQ(pair.ids, item["ids"].get<Ids>());
    EXPECT_EQ(pair.type_ids, item["type_ids"].get<Ids>());
  }
}

/// What an item of `chats` holds beside the messages and what came of them are arguments of the template.
RenderOptions render_options(const Json& item, const Tokenizer& tokenizer) {
  RenderOptions options;
  options.special_tokens = tokenizer.special_tokens();
  Json extra = Json::object();
  for (const auto& [key, value] : item.items()) {
    if (key == "add_generation_prompt") {
      options.add_generation_prompt = value;
    } else if (key == "tools") {
      options.tools_json = value.dump();
    } else if (key != "name" && key != "messages" && key != "rendered" && key != "ids" && key != "error") {
      extra[key] = value;
    }
  }
  options.extra_json = extra.dump();
  return options;
}

TEST_P(TokenizerGolden, RendersChatsOrRefusesThem) {
  const auto source = tokenizer_.chat_template();
  ASSERT_EQ(source.has_value(), !expected_["chats"].empty());
  for (const Json& item : expected_["chats"]) {
    SCOPED_TRACE(item["name"].get<std::string>());
    const ChatTemplate chat_template(*source);
    const RenderOptions options = render_options(item, tokenizer_);
    const std::string messages = item["messages"].dump();
    if (item.contains("error")) {
      EXPECT_THROW(chat_template.render(messages, options), Error);
      continue;
    }
    const Rendered rendered = chat_template.render(messages, options);
    EXPECT_EQ(rendered.text, item["rendered"].get<std::string>());
    EXPECT_EQ(tokenizer_.encode(rendered.text, {.add_special_tokens = false}).ids, item["ids"].get<Ids>());
  }
}

TEST_P(TokenizerGolden, ABatchOverThreadsEqualsTextsOneByOne) {
  std::vector<std::string> texts;
  for (const Json& item : expected_["texts"]) texts.push_back(item["text"].get<std::string>());
  ThreadTeam team(4);
  const auto batch = tokenizer_.encode_batch(texts, {.with_offsets = true}, team);
  ASSERT_EQ(batch.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(batch[i].ids, expected_["texts"][i]["ids_with_special"].get<Ids>()) << texts[i];
    EXPECT_EQ(batch[i].offsets.size(), batch[i].ids.size());
  }
}

TEST_P(TokenizerGolden, IdsAndTokensAreEachOthersInverse) {
  ASSERT_GT(tokenizer_.vocab_size(), 0);
  for (const Json& item : expected_["texts"]) {
    for (const int32_t id : item["ids_with_special"].get<Ids>()) {
      const auto token = tokenizer_.id_to_token(id);
      ASSERT_TRUE(token.has_value()) << id;
      EXPECT_EQ(tokenizer_.token_to_id(*token), id);
    }
  }
}

std::string test_name(const testing::TestParamInfo<TokenizerCase>& item) {
  std::string name = item.param.name;
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Folders, TokenizerGolden, testing::ValuesIn(tokenizer_cases()), test_name);

}  // namespace
}  // namespace lockstep::text
