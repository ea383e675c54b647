#include "lockstep/text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/philox.h"
#include "text/expect_error.h"
#include "text/tokenizer_folders.h"

namespace lockstep::text {
namespace {

/// A copy of tiny-chatml's folder that a test may damage.
class TokenizerFiles : public testing::Test {
 protected:
  TokenizerFiles() {
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(tokenizer_folder("tiny-chatml") / file, path() / file);
    }
  }
  fs::path path() const { return folder_.path(); }
  void write(const char* file, std::string_view content) const { write_file_atomically(path() / file, content); }

  TempFolder folder_{"lockstep-tokenizer-"};
};

TEST_F(TokenizerFiles, SpecialTokensAndLengthComeFromTheConfiguration) {
  const Tokenizer tokenizer = Tokenizer::from_folder(path());
  EXPECT_EQ(tokenizer.eos_id(), tokenizer.token_to_id("<|im_end|>"));
  EXPECT_EQ(tokenizer.pad_id(), tokenizer.token_to_id("<|endoftext|>"));
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer.require_eos_id(), 2);
  EXPECT_EQ(tokenizer.model_max_length(), 128);
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_EQ(tokenizer.special_tokens().at("eos_token"), "<|im_end|>");
}

TEST_F(TokenizerFiles, TokensMayBeObjectsAndMayComeFromTheOtherFile) {
  write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>", "lstrip": false}, "bos_token": null})");
  write("special_tokens_map.json", R"({"bos_token": "<|im_start|>", "pad_token": {"content": "<|endoftext|>"}})");
  const Tokenizer tokenizer = Tokenizer::from_folder(path());
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.pad_id(), 0);
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt) << "null in tokenizer_config.json says there is none";
  EXPECT_EQ(tokenizer.model_max_length(), std::nullopt);
}

TEST_F(TokenizerFiles, AHugeMaximumLengthMeansNone) {
  write("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(Tokenizer::from_folder(path()).model_max_length(), std::nullopt);
}

TEST_F(TokenizerFiles, TruncationAndPaddingOfTheFileAreIgnored) {
  const auto plain = Tokenizer::from_folder(path()).encode("a longer text than four tokens").ids;
  auto json = read_json(path() / "tokenizer.json");
  json["truncation"] = {{"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 99}}}, {"direction", "Right"}, {"pad_to_multiple_of", nullptr},
                     {"pad_id", 0}, {"pad_type_id", 0}, {"pad_token", "<|endoftext|>"}};
  write("tokenizer.json", json.dump());
  EXPECT_GT(plain.size(), 4U);
  EXPECT_EQ(Tokenizer::from_folder(path()).encode("a longer text than four tokens").ids, plain);
}

TEST_F(TokenizerFiles, TheTemplateFileWinsOverTheConfiguration) {
  EXPECT_TRUE(Tokenizer::from_folder(path()).chat_template()->starts_with("{% for"));
  write("chat_template.jinja", "from the file");
  EXPECT_EQ(Tokenizer::from_folder(path()).chat_template(), "from the file");
  fs::create_directory(path() / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "with tools");
  EXPECT_EQ(Tokenizer::from_folder(path()).chat_template(/*with_tools=*/true), "with tools");
  EXPECT_EQ(Tokenizer::from_folder(path()).chat_template(), "from the file");
}

TEST_F(TokenizerFiles, OfNamedTemplatesTheDefaultIsTaken) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  const Tokenizer tokenizer = Tokenizer::from_folder(path());
  EXPECT_EQ(tokenizer.chat_template(), "D");
  EXPECT_EQ(tokenizer.chat_template(true), "T");
}

TEST_F(TokenizerFiles, WithoutADefaultTheNamesAreListed) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "x", "template": ""}]})");
  const Tokenizer tokenizer = Tokenizer::from_folder(path());
  expect_error(ErrorKind::Data, {"rag, x", "chat_template.jinja"}, [&] { tokenizer.chat_template(); });
}

TEST_F(TokenizerFiles, NoConfigurationMeansNoSpecialTokensAndNoTemplate) {
  fs::remove(path() / "tokenizer_config.json");
  const Tokenizer tokenizer = Tokenizer::from_folder(path());
  EXPECT_EQ(tokenizer.chat_template(), std::nullopt);
  expect_error(ErrorKind::Data, {path().string(), "no eos_token", "tokenizer_config.json"},
               [&] { tokenizer.require_eos_id(); });
}

TEST_F(TokenizerFiles, AMissingFolderOrFileIsNamedWithItsRemedy) {
  expect_error(ErrorKind::Data, {"/no/such/model"}, [] { Tokenizer::from_folder("/no/such/model"); });
  fs::remove(path() / "tokenizer.json");
  expect_error(ErrorKind::Data, {path().string(), "no tokenizer.json", "save_pretrained"},
               [&] { Tokenizer::from_folder(path()); });
}

TEST_F(TokenizerFiles, ATruncatedTokenizerIsRefused) {
  const std::string whole = read_file(path() / "tokenizer.json");
  for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 2}) {
    write("tokenizer.json", whole.substr(0, size));
    expect_error(ErrorKind::Data, {"tokenizer.json", std::to_string(size) + " bytes", "Download it again"},
                 [&] { Tokenizer::from_folder(path()); });
  }
}

TEST_F(TokenizerFiles, AValidJsonThatIsNoTokenizerIsRefused) {
  write("tokenizer.json", R"({"version": "1.0", "model": {"type": "Nothing"}})");
  expect_error(ErrorKind::Data, {"tokenizer.json"}, [&] { Tokenizer::from_folder(path()); });
}

TEST_F(TokenizerFiles, ABrokenConfigurationIsNamed) {
  const struct {
    const char* content;
    const char* words;
  } cases[] = {{"{\"eos_token\": ", "not valid JSON"},
               {"[1]", "array"},
               {"{\"eos_token\": 7}", "eos_token is 7"},
               {"{\"chat_template\": 7}", "chat_template is a JSON number"},
               {"{\"chat_template\": [{\"name\": \"x\"}]}", "\"template\""},
               {"{\"model_max_length\": -1}", "model_max_length is -1"}};
  for (const auto& item : cases) {
    write("tokenizer_config.json", item.content);
    expect_error(ErrorKind::Data, {"tokenizer_config.json", item.words}, [&] { Tokenizer::from_folder(path()); });
  }
}

TEST_F(TokenizerFiles, ASpecialTokenOutsideTheVocabularyIsRefused) {
  write("tokenizer_config.json", R"({"eos_token": "<|stop|>"})");
  expect_error(ErrorKind::Data, {path().string(), "eos_token \"<|stop|>\"", "added_tokens"},
               [&] { Tokenizer::from_folder(path()); });
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsPlace) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder("tiny-chatml"));
  for (const char* text : {"ab\xff", "ab\xc3", "ab\xed\xa0\x80"}) {
    expect_error(ErrorKind::Data, {"not valid UTF-8 at byte 2"}, [&] { tokenizer.encode(text); });
  }
  EXPECT_EQ(tokenizer.encode(std::string_view("a\0b", 3)).ids.size(), 3U) << "a zero byte is a character";
}

TEST(Tokenizer, UnknownIdsAreRefusedWithTheirPlace) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder("tiny-chatml"));
  expect_error(ErrorKind::Data, {"id 512 at position 1"}, [&] { tokenizer.decode(std::vector{5, 512}, false); });
  expect_error(ErrorKind::Data, {"at position 0"}, [&] { tokenizer.decode(std::vector{-1}, false); });
  EXPECT_EQ(tokenizer.id_to_token(512), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.decode({}, false), "");
}

TEST(Tokenizer, OneHandleServesSeveralThreadsAtOnce) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder("tiny-spbpe"));
  std::vector<std::string> texts;
  for (int i = 0; i < 50; ++i) texts.push_back("text number " + std::to_string(i * 7919) + " \u4e16\u754c");
  std::vector<std::vector<int32_t>> alone;
  for (const auto& text : texts) alone.push_back(tokenizer.encode(text).ids);
  std::vector<int> num_equal(4, 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < num_equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        const auto ids = tokenizer.encode(texts[i]).ids;
        const bool decoded = !tokenizer.decode(ids, true).empty();
        if (ids == alone[i] && decoded && tokenizer.token_to_id("<s>") == 1) ++num_equal[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : num_equal) EXPECT_EQ(count, 50);
}

/// Texts of what BERT's cutting treats apart: letters of both cases, marks, spaces, digits; sometimes what plain ASCII
/// must not be taken for.
std::string random_text(uint64_t ordinal) {
  static const std::vector<std::string> pieces = {
      "a", "E", "q", "Z", "the", "THE", "un", "able", "7", "2003", " ", " ", " ", "  ", "'", "\"", "-", "$", "<", "`", "_",
      "##s", "!", "...", "~", "[", "]", "[MASK]", "[sep]", "\t", "\n", "\v", "\x7f", "\x01", "\u00e9", "\u4e16", "\u2019"};
  const RandomStream stream{.seed = 5, .ordinal = ordinal};
  const size_t kinds = stream.word(0) % 2 == 0 ? 25 : pieces.size();
  std::string text;
  for (uint64_t i = 0; i < stream.word(1) % 60; ++i) text += pieces[stream.word(2 + i) % kinds];
  return text;
}

TEST(Tokenizer, BertsIdsAreTheSameWithoutOffsets) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder("bert-uncased"));
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string first = random_text(2 * i), second = random_text(2 * i + 1);
    for (const int64_t max_length : {0, 12}) {
      EncodeOptions plain, offsets;
      if (max_length > 0) plain.max_length = offsets.max_length = max_length;
      offsets.with_offsets = true;
      ASSERT_EQ(tokenizer.encode(first, plain).ids, tokenizer.encode(first, offsets).ids) << first;
      const Encoding pair = tokenizer.encode_pair(first, second, plain);
      const Encoding wanted = tokenizer.encode_pair(first, second, offsets);
      ASSERT_EQ(pair.ids, wanted.ids) << first << " | " << second;
      ASSERT_EQ(pair.type_ids, wanted.type_ids) << first << " | " << second;
      ASSERT_EQ(pair.num_cut, wanted.num_cut) << first << " | " << second;
    }
  }
}

TEST(Tokenizer, MovesAndKeepsWorking) {
  Tokenizer first = Tokenizer::from_folder(tokenizer_folder("tiny-chatml"));
  const auto ids = first.encode("abc").ids;
  Tokenizer second = std::move(first);
  EXPECT_EQ(second.encode("abc").ids, ids);
}

}  // namespace
}  // namespace lockstep::text
