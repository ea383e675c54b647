#pragma once

#include "lockstep/data/examples.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::data {

/// The row decoded, special tokens included, with trained stretches in [[ ]]. Stretches longer than
/// 2 * `shown_characters` are shortened in the middle, saying how many characters are left out. Control characters
/// other than newline become '?'. The token at position 0 is never a target, whatever its mark.
std::string preview(const TokenRow& row, const text::Tokenizer& tokenizer, size_t shown_characters);

/// Text for the middle of a message: newlines as \n, other control characters as '?', shortened in the same way.
std::string one_line(std::string_view text, size_t shown_characters);

}  // namespace lockstep::data
