#pragma once

#include "lockstep/base/files.h"

#include <string>
#include <vector>

namespace lockstep::fuzz {

/// The files of a folder by name, or the one file that `path` is. Throws Error{Usage} for one that does not exist.
std::vector<std::string> read_corpus(const fs::path& path);
/// Of the inputs' bytes: 16 hexadecimal digits.
std::string name_of(const std::string& input);

}  // namespace lockstep::fuzz
