#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// An option struct names its members once, in `template <class V> void visit(V& v)`:
///
///   v.group("Optimizer");
///   v("learning_rate", learning_rate, "Peak learning rate.").at_least(0);
///
/// collect() turns that into a list of Fields, which every walker of this folder reads: command line, YAML, JSON,
/// help, docs, checks. A member's initialiser is its default. Option structs include nothing from here.
namespace lockstep::options {

using Words = std::vector<std::string>;

/// What an option can be. An optional without a value prints as "none".
using Value = std::variant<bool, std::optional<bool>, int64_t, std::optional<int64_t>, double, std::optional<double>,
                           std::string, std::optional<std::string>, Words, std::optional<Words>>;
/// The member itself, same order of alternatives as Value.
using Target = std::variant<bool*, std::optional<bool>*, int64_t*, std::optional<int64_t>*, double*,
                            std::optional<double>*, std::string*, std::optional<std::string>*, Words*,
                            std::optional<Words>*>;

enum class Class {
  Works,
  NoObject,  ///< accepted with one note: there is nothing here that it could act on
  Refused,   ///< a value that would ask for something else is an error with the reason and what to do instead
};

struct Bound {
  double value = 0;
  bool inclusive = true;
};

struct Spec {
  std::string key;
  std::string help;
  std::string group;
  std::string unit;                ///< "tokens", "seconds", "path" ...; empty: a plain value
  std::string unset;               ///< what holds while an optional is none: "trainer_output", "what memory demands"
  Class kind = Class::Works;
  std::string reason;              ///< of NoObject and Refused
  std::string remedy;              ///< of Refused
  Words accepted;                  ///< values beside the default that are taken silently, whatever the class
  std::optional<Bound> lower;
  std::optional<Bound> upper;
  Words choices;                   ///< empty: any value
  Words refused_values;            ///< values known to others; refused by name
  std::string refused_values_reason;
  std::string refused_values_remedy;
  std::string pattern;             ///< ECMAScript regular expression for the whole text
  std::string pattern_words;       ///< the same for people
  bool is_json = false;            ///< a mapping (or list of mappings), kept as JSON text
  bool is_hidden = false;          ///< shown by --help_all only
  bool is_secret = false;          ///< its value is never printed or stored
};

struct Field {
  Spec spec;
  Target target;
  Value initial;  ///< the default

  Value value() const;
  /// `value` must hold the alternative of `target`.
  void set(Value value) const;
  bool is_default() const { return value() == initial; }
};
using Fields = std::vector<Field>;

/// What a visit may say about an option; each call describes the option just named.
class SpecWriter {
 public:
  explicit SpecWriter(Spec& spec) : spec_(&spec) {}
  SpecWriter& unit(std::string_view text) { return spec_->unit = text, *this; }
  SpecWriter& unset(std::string_view words) { return spec_->unset = words, *this; }
  SpecWriter& above(double low) { return spec_->lower = Bound{low, false}, *this; }
  SpecWriter& at_least(double low) { return spec_->lower = Bound{low, true}, *this; }
  SpecWriter& below(double high) { return spec_->upper = Bound{high, false}, *this; }
  SpecWriter& at_most(double high) { return spec_->upper = Bound{high, true}, *this; }
  SpecWriter& choices(std::initializer_list<const char*> words);
  SpecWriter& accepted(std::initializer_list<const char*> words);
  SpecWriter& refused_values(std::initializer_list<const char*> words, std::string_view reason,
                             std::string_view remedy);
  SpecWriter& pattern(std::string_view expression, std::string_view words);
  SpecWriter& no_object(std::string_view reason);
  SpecWriter& refused(std::string_view reason, std::string_view remedy);
  SpecWriter& json() { return spec_->is_json = true, *this; }
  SpecWriter& hidden() { return spec_->is_hidden = true, *this; }
  SpecWriter& secret() { return spec_->is_secret = true, *this; }

 private:
  Spec* spec_;
};

/// The visitor that collect() sends through a struct.
class Collector {
 public:
  void group(std::string_view name) { group_ = name; }
  template <class Member>
  SpecWriter operator()(std::string_view key, Member& member, std::string_view help) {
    return add(key, &member, help);
  }
  Fields take() { return std::move(fields_); }

 private:
  SpecWriter add(std::string_view key, Target target, std::string_view help);
  std::string group_;
  Fields fields_;
};

/// The fields of `object`, in the order of its visit; they point into it. Defaults come from a fresh Options.
template <class Options>
Fields collect(Options& object) {
  Options fresh;
  Collector of_defaults;
  fresh.visit(of_defaults);
  const Fields defaults = of_defaults.take();
  Collector collector;
  object.visit(collector);
  Fields fields = collector.take();
  for (size_t i = 0; i < fields.size(); ++i) fields[i].initial = defaults[i].value();
  return fields;
}

/// `key` in underscores or dashes; nullptr if there is none.
const Field* find(const Fields& fields, std::string_view key);
/// Dashes become underscores.
std::string canonical_key(std::string_view key);

/// Where a value came from.
struct Origin {
  enum class Kind { Default, File, CommandLine };
  Kind kind = Kind::Default;
  std::string file;  ///< File only; or the name of an environment variable
  int line = 0;      ///< File only; counted from 1, 0 for what has no lines

  /// "default", "run.yaml:14" or "command line".
  std::string text() const;
  static Origin from_text(std::string_view text);
  bool operator==(const Origin&) const = default;
};
/// By key; an absent key has its default.
using Origins = std::map<std::string, Origin, std::less<>>;
Origin origin_of(const Origins& origins, std::string_view key);

/// Everything that is wrong is gathered, then thrown at once.
class Problems {
 public:
  void add(std::string text) { texts_.push_back(std::move(text)); }
  bool empty() const { return texts_.empty(); }
  const Words& texts() const { return texts_; }
  /// Throws Error{Usage} that lists them all, one a line; returns if there are none.
  void throw_if_any() const;

 private:
  Words texts_;
};

}  // namespace lockstep::options
