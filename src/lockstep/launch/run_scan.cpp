#include "lockstep/launch/run_scan.h"

#include "lockstep/options/nearest.h"
#include "lockstep/options/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace lockstep::launch {

namespace {

using options::Field;
using options::Words;

constexpr std::string_view kHelp = "help";

/// As argparse: a dash starts a flag unless a number follows or the word has a space in it.
bool is_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-' || word.find(' ') != std::string_view::npos) return false;
  const char second = word[1] == '.' && word.size() > 2 ? word[2] : word[1];
  return std::isdigit(static_cast<unsigned char>(second)) == 0;
}

class Scanner {
 public:
  Scanner(std::span<const std::string> args, const options::Fields& fields, options::Problems& problems)
      : args_(args), fields_(fields), problems_(problems) {}

  RunWords scan() {
    while (!stopped_ && next_ < args_.size()) {
      const std::string& word = args_[next_];
      if (word == "--") {
        ++next_;
        break;
      }
      if (!is_flag(word)) break;
      ++next_;
      if (word.starts_with("--")) read_long(word);
      else read_short(word);
    }
    if (!stopped_) result_.program.assign(args_.begin() + static_cast<std::ptrdiff_t>(next_), args_.end());
    return std::move(result_);
  }

 private:
  void stop(std::string problem) {
    problems_.add(std::move(problem));
    stopped_ = true;
  }

  void read_long(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string written = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const std::optional<std::string> key = resolve(written);
    if (!key) return;
    take(*key, "--" + *key,
         equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1)));
  }

  void read_short(const std::string& word) {
    static constexpr std::pair<char, std::string_view> kShort[] = {
        {'h', kHelp}, {'m', "module"}, {'r', "redirects"}, {'t', "tee"}};
    const auto* found =
        std::find_if(std::begin(kShort), std::end(kShort), [&](const auto& entry) { return entry.first == word[1]; });
    const bool takes_value = word[1] == 'r' || word[1] == 't';
    if (found == std::end(kShort) || (word.size() > 2 && !takes_value)) {
      return stop(fmt::format("unknown flag {}. {}", word, kFlagsOfTheProgram));
    }
    std::optional<std::string> value;
    if (word.size() > 2) value = word.substr(word[2] == '=' ? 3 : 2);
    take(std::string(found->second), word.substr(0, 2), std::move(value));
  }

  void take(const std::string& key, const std::string& written, std::optional<std::string> value) {
    if (key == kHelp) {
      result_.help = RunWords::Help::Page;
      return;
    }
    const Field& field = *options::find(fields_, key);
    if (!value && !options::is_boolean(field)) {
      if (next_ >= args_.size() || is_flag(args_[next_])) {
        return stop(fmt::format("{} needs a value: {}.", written, options::expected_words(field)));
      }
      value = args_[next_++];
    }
    result_.flags.push_back({key, std::move(value)});
  }

  /// Exact names first, then unique beginnings.
  std::optional<std::string> resolve(const std::string& written) {
    const std::string key = options::canonical_key(written);
    Words candidates;
    const auto consider = [&](std::string_view name) {
      if (!key.empty() && name.starts_with(key)) candidates.emplace_back(name);
    };
    if (key == kHelp || options::find(fields_, key) != nullptr) return key;
    for (const Field& field : fields_) consider(field.spec.key);
    consider(kHelp);
    if (candidates.size() == 1) return candidates.front();
    if (candidates.empty()) {
      Words near = options::nearest_keys(fields_, key);
      for (std::string& name : near) name.insert(0, "--");
      stop(fmt::format("unknown flag --{}. {}{}", written,
                       near.empty() ? std::string() : fmt::format("Did you mean {}? ", fmt::join(near, " or ")),
                       kFlagsOfTheProgram));
    } else {
      for (std::string& name : candidates) name.insert(0, "--");
      stop(fmt::format("--{} could be {}. Write more of the name.", written, fmt::join(candidates, ", ")));
    }
    return std::nullopt;
  }

  static constexpr std::string_view kFlagsOfTheProgram =
      "Flags of the program come after its name; --help lists those of lockstep run.";

  std::span<const std::string> args_;
  const options::Fields& fields_;
  options::Problems& problems_;
  size_t next_ = 0;
  bool stopped_ = false;
  RunWords result_;
};

}  // namespace

RunWords scan_run(std::span<const std::string> args, const options::Fields& fields, options::Problems& problems) {
  return Scanner(args, fields, problems).scan();
}

}  // namespace lockstep::launch
