#include "lockstep/options/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/options/nearest.h"
#include "lockstep/options/value.h"

namespace lockstep::options {
namespace {

using Json = nlohmann::ordered_json;

bool is_quoted(const YAML::Node& node) { return node.Tag() == "!"; }
bool is_null(const YAML::Node& node) { return node.IsNull(); }

/// on and off are booleans in YAML 1.1, which trl's reader follows, but not on a command line.
std::string scalar_text(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (is_quoted(node)) return text;
  static constexpr std::array<std::string_view, 3> kOn = {"on", "On", "ON"};
  static constexpr std::array<std::string_view, 3> kOff = {"off", "Off", "OFF"};
  if (std::find(kOn.begin(), kOn.end(), text) != kOn.end()) return "true";
  if (std::find(kOff.begin(), kOff.end(), text) != kOff.end()) return "false";
  return text;
}

Json json_of_yaml(const YAML::Node& node) {
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& entry : node) object[entry.first.Scalar()] = json_of_yaml(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& element : node) list.push_back(json_of_yaml(element));
    return list;
  }
  if (is_null(node)) return nullptr;
  if (is_quoted(node)) return node.Scalar();
  const std::string text = scalar_text(node);
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

/// What a problem shows of a value.
std::string shown(const YAML::Node& node) {
  if (is_null(node)) return "null";
  return node.IsScalar() ? node.Scalar() : json_of_yaml(node).dump();
}

/// Python's str() of the value, which is what trl puts into the environment.
std::string environment_text(const YAML::Node& node) {
  if (is_null(node)) return "None";
  const std::string text = scalar_text(node);
  if (is_quoted(node)) return text;
  if (text == "true" || text == "yes") return "True";
  if (text == "false" || text == "no") return "False";
  return text;
}

/// What is wrong with a value before anyone asks what it means.
struct YamlFault {
  YAML::Node where;
  std::string text;
};

/// Mappings in which a key comes twice, or whose keys are no texts; an alias that holds itself.
std::optional<YamlFault> fault_within(const YAML::Node& node, int depth = 0) {
  constexpr int kMaxDepth = 100;
  if (depth > kMaxDepth) {
    return YamlFault{node, fmt::format("nested deeper than {} levels, or an alias that holds itself. Write it flat",
                                       kMaxDepth)};
  }
  if (!node.IsMap() && !node.IsSequence()) return std::nullopt;
  std::map<std::string, int> lines;
  for (const auto& entry : node) {
    const YAML::Node& value = node.IsMap() ? entry.second : static_cast<const YAML::Node&>(entry);
    if (node.IsMap()) {
      const YAML::Node& key = entry.first;
      if (!key.IsScalar()) return YamlFault{key, "a key must be a text"};
      const auto [earlier, is_new] = lines.emplace(key.Scalar(), key.Mark().line + 1);
      if (!is_new) {
        return YamlFault{key, fmt::format("the key {} stands in line {} already. Remove one of the two", key.Scalar(),
                                          earlier->second)};
      }
    }
    if (auto fault = fault_within(value, depth + 1)) return fault;
  }
  return std::nullopt;
}

class YamlReader {
 public:
  YamlReader(std::string path, const Fields& fields, Problems& problems)
      : path_(std::move(path)), fields_(&fields), problems_(&problems) {}

  YamlFile read(const YAML::Node& root) {
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) {
        problem(entry.first, "a key must be the name of an option");
        continue;
      }
      read_entry(entry.first.Scalar(), entry.first, entry.second);
    }
    return std::move(result_);
  }

 private:
  Origin origin(const YAML::Node& node) const {
    return {.kind = Origin::Kind::File, .file = path_, .line = node.Mark().line + 1};
  }
  void problem(const YAML::Node& where, std::string_view text) {
    problems_->add(fmt::format("{}: {}.", origin(where).text(), text));
  }

  void read_entry(const std::string& written, const YAML::Node& key_node, const YAML::Node& node) {
    const std::string key = canonical_key(written);
    const Origin here = origin(key_node);
    if (const auto earlier = lines_.find(key); earlier != lines_.end()) {
      problem(key_node, fmt::format("{} stands in line {} already. Remove one of the two", key, earlier->second));
      return;
    }
    lines_[key] = here.line;
    if (const auto fault = fault_within(node)) {
      problem(fault->where, fmt::format("{}: {}", key, fault->text));
      return;
    }
    if (key == "env") {
      read_environment(node, key_node);
      return;
    }
    const Field* field = find(*fields_, key);
    if (field == nullptr) {
      problems_->add(fmt::format("{}: unknown option {}. {}", here.text(), written,
                                 unknown_key_advice(*fields_, key, "")));
      return;
    }
    std::optional<Value> value = parse(*field, node);
    if (value) {
      result_.settings.push_back({key, std::move(*value), here});
    } else {
      const std::string written_value = field->spec.is_secret ? "(hidden)" : shown(node);
      problems_->add(fmt::format("{}: must be {}.", value_with_origin(key, written_value, here),
                                 expected_words(*field)));
    }
  }

  std::optional<Value> parse(const Field& field, const YAML::Node& node) const {
    if (is_null(node)) return is_optional(field) ? std::optional(unset_value(field)) : std::nullopt;
    if (node.IsScalar()) return parse_value(field, scalar_text(node));
    if (field.spec.is_json && !(node.IsSequence() && is_list(field))) return parse_value(field, json_of_yaml(node).dump());
    if (!node.IsSequence() || !is_list(field)) return std::nullopt;
    Words words;
    for (const auto& element : node) {
      if (!element.IsScalar() && !field.spec.is_json) return std::nullopt;
      words.push_back(element.IsScalar() ? element.Scalar() : json_of_yaml(element).dump());
    }
    return parse_words(field, words);
  }

  void read_environment(const YAML::Node& node, const YAML::Node& key_node) {
    if (is_null(node)) return;
    if (!node.IsMap()) {
      problem(key_node, "env must be a mapping from names to values, such as 'env: {HF_HOME: /data}'");
      return;
    }
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() || entry.second.IsMap() || entry.second.IsSequence()) {
        problem(entry.first, "an entry of env must be a name with one plain value");
        continue;
      }
      const std::string& name = entry.first.Scalar();
      if (name.empty() || name.find('=') != std::string::npos) {
        problem(entry.first, fmt::format("'{}' cannot be the name of an environment variable", name));
        continue;
      }
      result_.environment.emplace_back(name, environment_text(entry.second));
    }
  }

  std::string path_;
  const Fields* fields_;
  Problems* problems_;
  std::map<std::string, int> lines_;
  YamlFile result_;
};

/// Notes where the last quoted text begins.
class LastQuote final : public YAML::EventHandler {
 public:
  int line() const { return line_; }

 private:
  using Mark = YAML::Mark;
  void OnScalar(const Mark& mark, const std::string& tag, YAML::anchor_t, const std::string&) override {
    if (tag == "!") line_ = mark.line + 1;
  }
  void OnDocumentStart(const Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, YAML::anchor_t) override {}
  void OnAlias(const Mark&, YAML::anchor_t) override {}
  void OnSequenceStart(const Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  int line_ = 1;
};

/// Where the quote opens that reaches to the end of `text`.
int line_of_open_quote(const std::string& text) {
  LastQuote last;
  std::istringstream stream(text + "\n");
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(last)) {
    }
  } catch (const YAML::Exception&) {
    // Of brackets that the quote has swallowed; what was read before it is what is asked for.
  }
  return last.line();
}

/// yaml-cpp takes a quote that nobody closes for closed when a line break ends the file, and refuses the same file
/// without that break.
void require_closed_quotes(const std::string& text, const std::string& path) {
  try {
    YAML::LoadAll(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
  } catch (const YAML::Exception& error) {
    if (error.msg != YAML::ErrorMsg::EOF_IN_SCALAR) return;  // said by the reader itself
    throw Error::usage("{}:{}: the quote that opens here is never closed. Close it, or remove it.", path,
                       line_of_open_quote(text));
  }
}

YAML::Node load(const std::string& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const Error& error) {
    throw Error::usage("--config {}", error.what());
  }
  require_closed_quotes(text, path);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      throw Error::usage("{}:{}: a second document begins here ('---'); a configuration is one. Join them.", path,
                         documents[1].Mark().line + 1);
    }
    return documents.empty() ? YAML::Node() : documents[0];
  } catch (const YAML::Exception& error) {
    throw Error::usage("{}:{}: this is not YAML: {}. Each line needs the form 'option: value'.", path,
                       error.mark.line + 1, error.msg);
  }
}

}  // namespace

YamlFile read_yaml(const std::string& path, const Fields& fields, Problems& problems) {
  const YAML::Node root = load(path);
  if (!root.IsDefined() || root.IsNull()) return {};
  if (!root.IsMap()) {
    throw Error::usage("{}:{}: the file must be a mapping from options to values, one 'option: value' a line.", path,
                       root.Mark().line + 1);
  }
  return YamlReader(path, fields, problems).read(root);
}

}  // namespace lockstep::options
