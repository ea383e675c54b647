#pragma once

#include "lockstep/model/json_fields.h"

#include <string>
#include <string_view>
#include <vector>

/// What the readers of config.json share. Inside model/ only.
namespace lockstep::model::detail {

/// "Nearest: X. There are: X, Y, Z." by Levenshtein's distance without case.
std::string nearest_and_all(std::string_view wanted, const std::vector<std::string_view>& known);

/// pad_token_id as torch.nn.Embedding's padding_idx: negative ones count from the end of the vocabulary; -1 for null.
int64_t read_pad_token(const JsonFields& fields, int64_t absent, int64_t vocab_size);

/// dtype or torch_dtype: float32, bfloat16, float16 or "".
std::string read_stored_dtype(const JsonFields& fields);

/// At least 0 and below 1.
double read_probability(const JsonFields& fields, const std::string& key, double absent);

void refuse_quantised(const JsonFields& fields);

}  // namespace lockstep::model::detail
