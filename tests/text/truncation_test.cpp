// Equality with transformers' truncation=True: tests/data/tokenizers/make_truncation.py.
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/files.h"
#include "lockstep/text/tokenizer.h"
#include "text/expect_error.h"
#include "text/tokenizer_folders.h"

namespace lockstep::text {
namespace {

using Ids = std::vector<int32_t>;

/// The tokenizer of a folder, told to cut at `side`.
Tokenizer with_side(const std::string& folder, const std::string& side) {
  const TempFolder temporary("truncation");
  fs::copy_file(tokenizer_folder(folder) / "tokenizer.json", temporary.path() / "tokenizer.json");
  write_file_atomically(temporary.path() / "tokenizer_config.json", "{\"truncation_side\": \"" + side + "\"}");
  return Tokenizer::from_folder(temporary.path());
}

TEST(Truncation, CutsAsTransformersDoes) {
  const auto golden = read_json(fs::path(LOCKSTEP_TEST_DATA) / "tokenizers/truncation.json");
  std::map<std::pair<std::string, std::string>, Tokenizer> tokenizers;
  ASSERT_GT(golden["cases"].size(), 400U);
  int64_t num_cut = 0;
  for (const auto& item : golden["cases"]) {
    const std::pair key{item["folder"].get<std::string>(), item["side"].get<std::string>()};
    auto found = tokenizers.find(key);
    if (found == tokenizers.end()) found = tokenizers.emplace(key, with_side(key.first, key.second)).first;
    const auto text = [&](size_t i) { return golden["texts"][item["texts"][i].get<size_t>()].get<std::string>(); };
    const EncodeOptions options{.max_length = item["max_length"].get<int64_t>()};
    const Encoding made = item["texts"].size() == 1 ? found->second.encode(text(0), options)
                                                    : found->second.encode_pair(text(0), text(1), options);
    EXPECT_EQ(made.ids, item["ids"].get<Ids>()) << item.dump();
    EXPECT_EQ(made.type_ids, item["type_ids"].get<Ids>()) << item.dump();
    EXPECT_EQ(made.num_cut, item["cut"].get<int64_t>()) << item.dump();
    num_cut += made.num_cut;
  }
  EXPECT_GT(num_cut, 1000);
}

TEST(Truncation, KeepsOffsetsWithTheirTokens) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder("bert-uncased"));
  const Encoding whole = tokenizer.encode("one two three four", {.with_offsets = true});
  const Encoding cut = tokenizer.encode("one two three four", {.with_offsets = true, .max_length = 4});
  ASSERT_EQ(cut.ids.size(), 4U);
  EXPECT_EQ(cut.offsets[2], whole.offsets[2]);
  EXPECT_EQ(cut.offsets[3], whole.offsets[5]) << "[SEP]";
  EXPECT_EQ(whole.num_cut, 0);
}

TEST(Truncation, SpecialTokensMustFit) {
  const Tokenizer tokenizer = Tokenizer::from_folder(tokenizer_folder("bert-uncased"));
  EXPECT_EQ(tokenizer.encode_pair("a", "b", {.max_length = 3}).ids.size(), 3U);
  expect_error(ErrorKind::Data, {"a length of 2 does not hold the 3 special tokens"},
               [&] { tokenizer.encode_pair("a", "b", {.max_length = 2}); });
}

TEST(Truncation, AnUnknownSideIsRefused) {
  expect_error(ErrorKind::Data, {"truncation_side is \"middle\"", "\"right\" or \"left\""},
               [] { with_side("bert-uncased", "middle"); });
}

}  // namespace
}  // namespace lockstep::text
