#pragma once

#include "lockstep/launch/run_command_line.h"

#include <sstream>
#include <string>
#include <vector>

namespace lockstep::launch {

inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

inline ParsedRun parse_line(const std::string& line, const Environment& environment = {}) {
  return parse_run(words_of(line), environment, {});
}

/// The message of the Error{Usage} that `work` throws; empty when it does not.
template <class Work>
std::string usage_error(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::Usage ? error.what() : std::string("not a usage error: ") + error.what();
  }
  return {};
}

}  // namespace lockstep::launch
