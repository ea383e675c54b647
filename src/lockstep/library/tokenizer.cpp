#include "lockstep/library/tokenizer.h"

#include "lockstep/base/error.h"
#include "lockstep/library/dataset_impl.h"

#include <utility>

namespace lockstep {
namespace {

text::EncodeOptions text_options(const EncodeOptions& options, const text::Tokenizer& tokenizer) {
  if (options.max_length && !options.truncation) {
    throw Error::usage("max_length = {} without truncation: set .truncation = true, or leave max_length out.",
                       *options.max_length);
  }
  if (options.max_length && *options.max_length < 1) {
    throw Error::usage("max_length = {}: must be at least 1.", *options.max_length);
  }
  text::EncodeOptions result;
  result.add_special_tokens = options.add_special_tokens;
  if (options.truncation) result.max_length = options.max_length ? options.max_length : tokenizer.model_max_length();
  return result;
}

Encoding to_public(text::Encoding encoding) { return {std::move(encoding.ids), std::move(encoding.type_ids)}; }

}  // namespace

Tokenizer Tokenizer::from_pretrained(const std::string& folder) {
  return Tokenizer(std::make_shared<const Impl>(Impl{text::Tokenizer::from_folder(folder)}));
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return to_public(impl_->tokenizer.encode(text, text_options(options, impl_->tokenizer)));
}

Encoding Tokenizer::encode(std::string_view text, std::string_view text_pair, const EncodeOptions& options) const {
  return to_public(impl_->tokenizer.encode_pair(text, text_pair, text_options(options, impl_->tokenizer)));
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return impl_->tokenizer.decode(ids, skip_special_tokens);
}

int64_t Tokenizer::vocab_size() const { return impl_->tokenizer.vocab_size(); }
std::optional<int64_t> Tokenizer::model_max_length() const { return impl_->tokenizer.model_max_length(); }

}  // namespace lockstep
