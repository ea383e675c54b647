#include "text/tokenizer_folders.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::text {

namespace {

/// The build unpacks tests/data/tokenizers here, packed files included.
const fs::path kUnpacked = LOCKSTEP_UNPACKED_TOKENIZERS;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

fs::path tokenizer_folder(const std::string& name) { return kUnpacked / name; }

std::vector<TokenizerCase> tokenizer_cases() {
  const std::string elsewhere = environment("LOCKSTEP_TOKENIZERS");
  const fs::path root = elsewhere.empty() ? kUnpacked : fs::path(elsewhere);
  const std::string other_expected = environment("LOCKSTEP_TOKENIZERS_EXPECTED");
  const fs::path expected_root = elsewhere.empty() || other_expected.empty() ? root : fs::path(other_expected);
  std::vector<TokenizerCase> cases;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "tokenizer.json")) continue;
    const std::string name = entry.path().filename().string();
    cases.push_back({name, entry.path(), expected_root / name / "expected.json"});
  }
  if (cases.empty()) {
    throw Error::environment("No tokenizers under {}. Build the target lockstep_test_tokenizers.", root.string());
  }
  std::ranges::sort(cases, {}, &TokenizerCase::name);
  return cases;
}

nlohmann::ordered_json read_json(const fs::path& path) { return nlohmann::ordered_json::parse(read_file(path)); }

}  // namespace lockstep::text
