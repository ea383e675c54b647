#include "lockstep/text/tokenizer.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/text/bridge.h"

#ifdef __SANITIZE_THREAD__
// The Rust code is not instrumented: the sanitizer sees its memcpy and malloc but not the RwLock around the cache of
// words that the threads of one tokenizer share, and reports the cache as a race.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:tokenizers::\nrace:alloc..vec..Vec\n";
}
#endif

namespace lockstep::text {

namespace {

using detail::BridgeString;
using detail::to_bridge;

/// For calls on a loaded tokenizer: what they refuse is the input's fault, unless it is a bug.
void check(int32_t code, const char* doing, const fs::path& folder, const BridgeString& error) {
  if (code == LSB_OK) return;
  if (code == LSB_PANIC) throw Error::internal("{} with the tokenizer of {}: {}.", doing, folder.string(), error.str());
  throw Error::data("{} with the tokenizer of {} failed: {}. Correct the text or the ids.", doing, folder.string(),
                    error.str());
}

struct FreeEncoding {
  void operator()(lsb_encoding* encoding) const { lsb_encoding_free(encoding); }
};

Encoding to_encoding(const lsb_encoding& from) {
  const size_t size = lsb_encoding_size(&from);
  const uint32_t* ids = lsb_encoding_ids(&from);
  const uint32_t* type_ids = lsb_encoding_type_ids(&from);
  Encoding encoding;
  encoding.num_cut = static_cast<int64_t>(lsb_encoding_cut(&from));
  encoding.ids.assign(ids, ids + size);
  encoding.type_ids.assign(type_ids, type_ids + size);
  if (const uint32_t* offsets = lsb_encoding_offsets(&from)) {
    encoding.offsets.reserve(size);
    for (size_t i = 0; i < size; ++i) encoding.offsets.push_back({offsets[2 * i], offsets[2 * i + 1]});
  }
  return encoding;
}

Encoding encode_with(const lsb_tokenizer& tokenizer, lsb_text first, lsb_text second, EncodeOptions options,
                     bool cut_left, const fs::path& folder) {
  LS_CHECK(!options.max_length || *options.max_length > 0, "max_length = {}", *options.max_length);
  lsb_encoding* raw = nullptr;
  BridgeString error;
  const int32_t code = lsb_tokenizer_encode(&tokenizer, first, second, options.add_special_tokens,
                                            options.with_offsets, static_cast<size_t>(options.max_length.value_or(0)),
                                            cut_left, &raw, error.out());
  const std::unique_ptr<lsb_encoding, FreeEncoding> encoding(raw);
  check(code, "Tokenizing", folder, error);
  return to_encoding(*encoding);
}

}  // namespace

void Tokenizer::Free::operator()(lsb_tokenizer* handle) const { lsb_tokenizer_free(handle); }

Tokenizer::Tokenizer(fs::path folder, std::unique_ptr<lsb_tokenizer, Free> handle, TokenizerConfig config)
    : folder_(std::move(folder)), handle_(std::move(handle)), config_(std::move(config)) {}

Tokenizer Tokenizer::from_folder(const fs::path& folder) {
  const fs::path path = folder / "tokenizer.json";
  if (!fs::is_directory(folder)) {
    throw Error::data("No folder {} to read a tokenizer from. Give the path of a downloaded model.", folder.string());
  }
  if (!fs::exists(path)) {
    throw Error::data(
        "{} has no tokenizer.json. lockstep reads this file only; where a model comes without one, transformers writes "
        "it: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER).",
        folder.string());
  }
  const std::string json = read_file(path);
  lsb_tokenizer* raw = nullptr;
  BridgeString error;
  const int32_t code = lsb_tokenizer_new(to_bridge(json), &raw, error.out());
  std::unique_ptr<lsb_tokenizer, Free> handle(raw);
  if (code != LSB_OK) {
    throw Error::data("{} ({} bytes) is not a tokenizer that can be read: {}. Download it again.", path.string(),
                      json.size(), error.str());
  }
  Tokenizer tokenizer(folder, std::move(handle), read_tokenizer_config(folder));
  tokenizer.check_special_tokens();
  return tokenizer;
}

void Tokenizer::check_special_tokens() const {
  for (const char* name : {"bos_token", "eos_token", "pad_token"}) {
    const auto token = config_.special_tokens.find(name);
    if (token == config_.special_tokens.end() || token_to_id(token->second)) continue;
    throw Error::data(
        "{} names the {} \"{}\", which its tokenizer.json does not know. Name a token of the vocabulary in "
        "tokenizer_config.json, or add this one to added_tokens in tokenizer.json.",
        folder_.string(), name, token->second);
  }
}

Encoding Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return encode_with(*handle_, to_bridge(text), {nullptr, 0}, options, config_.truncates_left, folder_);
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second, EncodeOptions options) const {
  return encode_with(*handle_, to_bridge(first), to_bridge(second), options, config_.truncates_left, folder_);
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts, EncodeOptions options,
                                              ThreadTeam& team) const {
  std::vector<Encoding> encodings(texts.size());
  team.run(texts.size(), [&](size_t item, int) { encodings[item] = encode(texts[item], options); });
  return encodings;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  // A negative id becomes a large one, which no vocabulary has.
  const std::vector<uint32_t> unsigned_ids(ids.begin(), ids.end());
  BridgeString text;
  BridgeString error;
  const int32_t code = lsb_tokenizer_decode(handle_.get(), unsigned_ids.data(), unsigned_ids.size(),
                                            skip_special_tokens, text.out(), error.out());
  check(code, "Decoding", folder_, error);
  return text.str();
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  bool found = false;
  uint32_t id = 0;
  BridgeString error;
  check(lsb_tokenizer_token_to_id(handle_.get(), to_bridge(token), &found, &id, error.out()), "Looking up a token",
        folder_, error);
  if (!found) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  bool found = false;
  BridgeString token;
  BridgeString error;
  check(lsb_tokenizer_id_to_token(handle_.get(), static_cast<uint32_t>(id), &found, token.out(), error.out()),
        "Looking up an id", folder_, error);
  if (!found) return std::nullopt;
  return token.str();
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(lsb_tokenizer_vocab_size(handle_.get())); }

std::optional<int32_t> Tokenizer::special_id(const char* name) const {
  const auto token = config_.special_tokens.find(name);
  if (token == config_.special_tokens.end()) return std::nullopt;
  return token_to_id(token->second);
}

int32_t Tokenizer::require_eos_id() const {
  if (const auto id = eos_id()) return *id;
  throw Error::data("The tokenizer of {} names no eos_token. Name one in tokenizer_config.json.", folder_.string());
}

std::optional<std::string> Tokenizer::chat_template(bool with_tools) const {
  const auto& templates = config_.chat_templates;
  if (templates.empty()) return std::nullopt;
  if (const auto tool_use = templates.find("tool_use"); with_tools && tool_use != templates.end()) {
    return tool_use->second;
  }
  if (const auto found = templates.find("default"); found != templates.end()) return found->second;
  std::string names;
  for (const auto& [name, source] : templates) names += (names.empty() ? "" : ", ") + name;
  throw Error::data(
      "The tokenizer of {} has several chat templates ({}) and none is called \"default\". Put the one to use into "
      "chat_template.jinja.",
      folder_.string(), names);
}

}  // namespace lockstep::text
