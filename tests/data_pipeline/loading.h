#pragma once

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/data/examples.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

/// What the tests of loading share: a tokenizer, a file written on the spot, and the load itself.
namespace lockstep::data::testing {

/// ChatML, eos <|im_end|>, no BOS. The template has no generation blocks.
inline const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = text::Tokenizer::from_folder(LOCKSTEP_TEST_DATA "/models/tiny/llama");
  return tokenizer;
}

struct LoadWith {
  DataOptions options = {};
  const text::Tokenizer& tokenizer = tiny_tokenizer();
  std::optional<std::string> chat_template = tokenizer.chat_template();
  int64_t vocab_size = 1'000'000;
  int num_threads = 2;
};

/// Loads `content` as the file train.jsonl.
inline Dataset load(const std::string& content, LoadWith with = {}) {
  const TempFolder folder("data-pipeline");
  const auto file = folder.path() / "train.jsonl";
  write_file_atomically(file, content);
  with.options.dataset_name = file.string();
  std::optional<text::ChatTemplate> chat_template;
  if (with.chat_template) chat_template.emplace(*with.chat_template);
  ThreadTeam team(with.num_threads);
  return load_sft_dataset(with.options, with.tokenizer, chat_template ? &*chat_template : nullptr, with.vocab_size,
                          team);
}

/// `act` must throw an Error of `kind` whose message contains every one of `words`.
template <class Act>
void expect_error(ErrorKind kind, const std::vector<std::string>& words, Act act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), name(kind)) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << "no '" << word << "' in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "no error; expected one with '" << words.front() << "'";
}

inline std::vector<int32_t> encoded(const std::string& text, bool add_special_tokens = true) {
  return tiny_tokenizer().encode(text, {.add_special_tokens = add_special_tokens}).ids;
}

}  // namespace lockstep::data::testing
