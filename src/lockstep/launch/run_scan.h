#pragma once

#include "lockstep/options/field.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::launch {

/// The words of a `lockstep run` command line, told apart.
struct RunWords {
  struct Flag {
    std::string key;                        ///< of the field it means
    std::optional<std::string> value = {};  ///< absent: a boolean that stands alone
  };
  enum class Help { None, Page } help = Help::None;
  std::vector<Flag> flags;           ///< in the order written
  std::vector<std::string> program;  ///< the first word that is no flag and no flag's value, and all that follow
};

/// Finds the program and the flags before it. Dashes and underscores are alike, `--flag value` and `--flag=value` too,
/// names may be shortened while unique; -m, -r N (-rN), -t N (-tN), -h. A word `--` before the program is dropped.
/// Where a flag cannot be read, that goes to `problems` and the search ends there, since what follows may be its value.
RunWords scan_run(std::span<const std::string> args, const options::Fields& fields, options::Problems& problems);

}  // namespace lockstep::launch
