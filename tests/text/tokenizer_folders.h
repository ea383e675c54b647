#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep::text {

/// A folder with a tokenizer and its expected.json (tests/data/tokenizers/README.md).
struct TokenizerCase {
  std::string name;
  std::filesystem::path folder;    ///< tokenizer.json, tokenizer_config.json
  std::filesystem::path expected;  ///< expected.json

  /// How GoogleTest, and so ctest, shows it.
  friend void PrintTo(const TokenizerCase& item, std::ostream* out) { *out << item.name; }
};

/// Those in the repository; with LOCKSTEP_TOKENIZERS set, those of that folder instead, with their expected.json from
/// LOCKSTEP_TOKENIZERS_EXPECTED (the same folder if it is not set).
std::vector<TokenizerCase> tokenizer_cases();

/// A folder of the repository's, unpacked.
std::filesystem::path tokenizer_folder(const std::string& name);

nlohmann::ordered_json read_json(const std::filesystem::path& path);

}  // namespace lockstep::text
