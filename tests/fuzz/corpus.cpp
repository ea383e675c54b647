#include "fuzz/corpus.h"

#include "lockstep/base/hash.h"

#include <algorithm>
#include <span>

namespace lockstep::fuzz {

std::vector<std::string> read_corpus(const fs::path& path) {
  if (!fs::exists(path)) throw Error::usage("{}: there is no such corpus.", path.string());
  if (!fs::is_directory(path)) return {read_file(path)};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const fs::path& file : files) inputs.push_back(read_file(file));
  return inputs;
}

std::string name_of(const std::string& input) {
  return to_hex(hash_bytes(std::as_bytes(std::span(input))));
}

}  // namespace lockstep::fuzz
