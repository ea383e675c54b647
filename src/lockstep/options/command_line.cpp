#include "lockstep/options/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "lockstep/base/error.h"
#include "lockstep/options/nearest.h"
#include "lockstep/options/value.h"

namespace lockstep::options {
namespace {

constexpr std::array<std::string_view, 4> kOwnFlags = {"config", "dry_run", "help", "help_all"};

/// As argparse: a dash starts a flag unless a number follows or the word has a space in it.
bool is_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-' || word.find(' ') != std::string_view::npos) return false;
  const char second = word[1] == '.' && word.size() > 2 ? word[2] : word[1];
  return std::isdigit(static_cast<unsigned char>(second)) == 0;
}

/// A name written on the command line, resolved.
struct Flag {
  std::string name;              ///< canonical, without the no_ of a negation
  const Field* field = nullptr;  ///< nullptr: one of kOwnFlags
  bool negated = false;
};

class CommandLineReader {
 public:
  CommandLineReader(std::span<const std::string> args, const Fields& fields, Problems& problems)
      : args_(args), fields_(&fields), problems_(&problems) {
    for (std::string_view own : kOwnFlags) names_.push_back({std::string(own)});
    for (const Field& field : fields) {
      names_.push_back({field.spec.key, &field});
      if (is_true_by_default(field)) names_.push_back({field.spec.key, &field, true});
    }
  }

  CommandLine read() {
    while (next_ < args_.size()) read_one();
    return std::move(result_);
  }

 private:
  static std::string spelling(const Flag& flag) { return (flag.negated ? "no_" : "") + flag.name; }

  void read_one() {
    const std::string& word = args_[next_++];
    if (word == "-h") {
      result_.help = std::max(result_.help, Help::Short);
      return;
    }
    if (!is_flag(word)) {
      problems_->add(fmt::format("'{}' stands alone: every value follows a flag, as in --dataset_name FILE.", word));
      return;
    }
    if (!word.starts_with("--")) {
      problems_->add(fmt::format("unknown flag {}: flags start with two dashes. --help lists them.", word));
      skip_values();
      return;
    }
    const size_t equals = word.find('=');
    const bool has_value = equals != std::string::npos;
    const std::string written = word.substr(2, has_value ? equals - 2 : std::string::npos);
    const std::optional<Flag> flag = resolve(written);
    if (!flag) {
      if (!has_value) skip_values();
      return;
    }
    std::optional<std::string> attached;
    if (has_value) attached = word.substr(equals + 1);
    if (flag->field == nullptr) {
      read_own(*flag, std::move(attached));
    } else if (flag->negated) {
      if (attached) problems_->add(fmt::format("--no_{} takes no value. Remove '={}'.", flag->name, *attached));
      set(*flag->field, parse_value(*flag->field, "false"), "false");
    } else {
      read_field(*flag->field, std::move(attached));
    }
  }

  void read_own(const Flag& flag, std::optional<std::string> attached) {
    if (flag.name == "config") {
      if (!attached && next_ < args_.size() && !is_flag(args_[next_])) attached = args_[next_++];
      if (attached) result_.config = std::move(attached);
      else problems_->add("--config needs a value: the path of a YAML file.");
      return;
    }
    if (attached) problems_->add(fmt::format("--{} takes no value. Remove '={}'.", flag.name, *attached));
    if (flag.name == "dry_run") result_.dry_run = true;
    if (flag.name == "help") result_.help = std::max(result_.help, Help::Short);
    if (flag.name == "help_all") result_.help = Help::All;
  }

  void read_field(const Field& field, std::optional<std::string> attached) {
    Words words;
    if (attached) {
      words.push_back(std::move(*attached));
    } else {
      const size_t limit = is_list(field) ? args_.size() : 1;
      while (words.size() < limit && next_ < args_.size() && !is_flag(args_[next_])) words.push_back(args_[next_++]);
    }
    if (words.empty() && is_boolean(field)) words.emplace_back("true");
    if (words.empty() && !is_list(field)) {
      problems_->add(fmt::format("--{} needs a value: {}.", field.spec.key, expected_words(field)));
      result_.meant.push_back(field.spec.key);
      return;
    }
    set(field, parse_words(field, words), fmt::format("{}", fmt::join(words, " ")));
  }

  void set(const Field& field, std::optional<Value> value, std::string_view written) {
    const Origin origin{.kind = Origin::Kind::CommandLine, .file = {}, .line = 0};
    if (value) {
      result_.settings.push_back({field.spec.key, std::move(*value), origin});
    } else {
      problems_->add(fmt::format("{}: must be {}.", value_with_origin(field.spec.key, written, origin),
                                 expected_words(field)));
    }
  }

  /// Exact names first, then unambiguous beginnings; nothing (and a problem) otherwise.
  std::optional<Flag> resolve(const std::string& written) {
    const std::string key = canonical_key(written);
    std::vector<const Flag*> candidates;
    for (const Flag& flag : names_) {
      const std::string name = spelling(flag);
      if (name == key) return flag;
      if (!key.empty() && name.starts_with(key)) candidates.push_back(&flag);
    }
    if (candidates.size() == 1) return *candidates.front();
    if (candidates.empty() && key.starts_with("no_") && find(*fields_, key.substr(3)) != nullptr &&
        is_boolean(*find(*fields_, key.substr(3)))) {
      problems_->add(fmt::format("unknown flag --{}. Use --{} false.", written, key.substr(3)));
    } else if (candidates.empty()) {
      problems_->add(fmt::format("unknown flag --{}. {}", written, unknown_key_advice(*fields_, key, "--")));
      for (std::string& meant : nearest_keys(*fields_, key)) result_.meant.push_back(std::move(meant));
    } else {
      Words names;
      for (const Flag* flag : candidates) {
        names.push_back("--" + spelling(*flag));
        result_.meant.push_back(flag->name);
      }
      if (const std::string advice = former_name_advice(key, "--"); !advice.empty()) {
        problems_->add(fmt::format("unknown flag --{}. {}", written, advice));
        return std::nullopt;
      }
      const size_t shown = std::min<size_t>(names.size(), 6);
      problems_->add(fmt::format("--{} could be {}{}. Write more of the name.", written,
                                 fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                                 names.size() > shown ? " and others" : ""));
    }
    return std::nullopt;
  }

  /// Leaves out the values of a flag that could not be read, so that they are not reported a second time.
  void skip_values() {
    while (next_ < args_.size() && !is_flag(args_[next_])) ++next_;
  }

  std::span<const std::string> args_;
  const Fields* fields_;
  Problems* problems_;
  std::vector<Flag> names_;
  size_t next_ = 0;
  CommandLine result_;
};

}  // namespace

void apply(const Settings& settings, const Fields& fields, Origins& origins) {
  for (const Setting& setting : settings) {
    const Field* field = find(fields, setting.key);
    LS_CHECK(field != nullptr, "a setting for {}, which is no option", setting.key);
    field->set(setting.value);
    origins[field->spec.key] = setting.origin;
  }
}

CommandLine read_command_line(std::span<const std::string> args, const Fields& fields, Problems& problems) {
  return CommandLineReader(args, fields, problems).read();
}

}  // namespace lockstep::options
