#include "lockstep/options/field.h"

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep::options {

Value Field::value() const {
  return std::visit([](auto* member) { return Value(*member); }, target);
}

void Field::set(Value value) const {
  std::visit(
      [&](auto* member) {
        using Member = std::remove_pointer_t<decltype(member)>;
        auto* held = std::get_if<Member>(&value);
        LS_CHECK(held != nullptr, "option {} is given a value of another type", spec.key);
        *member = std::move(*held);
      },
      target);
}

SpecWriter& SpecWriter::choices(std::initializer_list<const char*> words) {
  spec_->choices.assign(words.begin(), words.end());
  return *this;
}

SpecWriter& SpecWriter::accepted(std::initializer_list<const char*> words) {
  spec_->accepted.assign(words.begin(), words.end());
  return *this;
}

SpecWriter& SpecWriter::refused_values(std::initializer_list<const char*> words, std::string_view reason,
                                       std::string_view remedy) {
  spec_->refused_values.assign(words.begin(), words.end());
  spec_->refused_values_reason = reason;
  spec_->refused_values_remedy = remedy;
  return *this;
}

SpecWriter& SpecWriter::pattern(std::string_view expression, std::string_view words) {
  spec_->pattern = expression;
  spec_->pattern_words = words;
  return *this;
}

SpecWriter& SpecWriter::no_object(std::string_view reason) {
  spec_->kind = Class::NoObject;
  spec_->reason = reason;
  return *this;
}

SpecWriter& SpecWriter::refused(std::string_view reason, std::string_view remedy) {
  spec_->kind = Class::Refused;
  spec_->reason = reason;
  spec_->remedy = remedy;
  return *this;
}

SpecWriter Collector::add(std::string_view key, Target target, std::string_view help) {
  Field& field = fields_.emplace_back();
  field.spec.key = key;
  field.spec.help = help;
  field.spec.group = group_;
  field.target = target;
  return SpecWriter(field.spec);
}

std::string canonical_key(std::string_view key) {
  std::string result(key);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

const Field* find(const Fields& fields, std::string_view key) {
  const std::string canonical = canonical_key(key);
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.spec.key == canonical; });
  return found == fields.end() ? nullptr : &*found;
}

std::string Origin::text() const {
  switch (kind) {
    case Kind::File: return line > 0 ? fmt::format("{}:{}", file, line) : file;
    case Kind::CommandLine: return "command line";
    case Kind::Default: break;
  }
  return "default";
}

Origin Origin::from_text(std::string_view text) {
  if (text == "default") return {};
  if (text == "command line") return {.kind = Kind::CommandLine, .file = {}, .line = 0};
  Origin origin{.kind = Kind::File, .file = std::string(text), .line = 0};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return origin;
  origin.file = text.substr(0, colon);
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), origin.line);
  return origin;
}

Origin origin_of(const Origins& origins, std::string_view key) {
  const auto found = origins.find(key);
  return found == origins.end() ? Origin{} : found->second;
}

void Problems::throw_if_any() const {
  if (texts_.empty()) return;
  if (texts_.size() == 1) throw Error::usage("{}", texts_.front());
  std::string all;
  for (const std::string& text : texts_) all += "\n  - " + text;
  throw Error::usage("{} problems:{}", texts_.size(), all);
}

}  // namespace lockstep::options
