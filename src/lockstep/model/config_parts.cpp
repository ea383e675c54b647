#include "lockstep/model/config_parts.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace lockstep::model::detail {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  constexpr size_t kLongest = 63;  // names are shorter
  b = b.substr(0, kLongest);
  std::array<size_t, kLongest + 1> row{};
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_and_all(std::string_view wanted, const std::vector<std::string_view>& known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(wanted, a) < edit_distance(wanted, b);
  });
  return fmt::format("Nearest: {}. There are: {}.", *nearest, fmt::join(known, ", "));
}

int64_t read_pad_token(const JsonFields& fields, int64_t absent, int64_t vocab_size) {
  if (fields.is_null("pad_token_id")) return -1;
  if (!fields.has("pad_token_id")) return absent;
  const int64_t id = fields.integer("pad_token_id", -1);
  if (id < -vocab_size || id >= vocab_size)
    throw Error::data("{} is outside the vocabulary of {}. Correct it.", fields.where("pad_token_id"), vocab_size);
  return id < 0 ? id + vocab_size : id;
}

std::string read_stored_dtype(const JsonFields& fields) {
  const char* key = fields.has("dtype") ? "dtype" : "torch_dtype";
  std::string name = fields.text(key, "");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name.empty() || name == "float32" || name == "bfloat16" || name == "float16") return name;
  throw Error::data("{}: this type is not there. There are: float32, bfloat16, float16.", fields.where(key));
}

double read_probability(const JsonFields& fields, const std::string& key, double absent) {
  const double value = fields.real(key, absent);
  if (!(value >= 0 && value < 1)) throw Error::data("{} must be at least 0 and below 1. Correct it.", fields.where(key));
  return value;
}

void refuse_quantised(const JsonFields& fields) {
  if (fields.has("quantization_config"))
    throw Error::data("{}: quantised weights are not there. Give the folder of the unquantised model.",
                      fields.where("quantization_config"));
}

}  // namespace lockstep::model::detail
