#include "lockstep/text/tokenizer_config.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::text {

namespace {

using nlohmann::json;

constexpr std::array kSpecialTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

/// The object in a JSON file; an empty one if there is no such file.
json read_object(const fs::path& path) {
  if (!fs::exists(path)) return json::object();
  json value;
  try {
    value = json::parse(read_file(path));
  } catch (const json::exception& error) {
    throw Error::data("{} is not valid JSON: {}. Download the model folder again.", path.string(), error.what());
  }
  if (!value.is_object()) {
    throw Error::data("{} holds a JSON {} where an object belongs. Download the model folder again.", path.string(),
                      value.type_name());
  }
  return value;
}

/// A token is a text, or an object with the text under "content"; null: the model has none.
std::optional<std::string> token_text(const json& value, const fs::path& path, const char* name) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  throw Error::data("{}: {} is {}; it must be a text, an object with a text under \"content\", or null.", path.string(),
                    name, value.dump());
}

void add_special_tokens(const json& config, const fs::path& path, const json& first, TokenizerConfig& out) {
  for (const char* name : kSpecialTokens) {
    if (!config.contains(name) || first.contains(name)) continue;
    if (auto text = token_text(config[name], path, name)) out.special_tokens[name] = std::move(*text);
  }
}

void add_configured_templates(const json& config, const fs::path& path, TokenizerConfig& out) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return;
  if (found->is_string()) {
    out.chat_templates["default"] = found->get<std::string>();
    return;
  }
  const auto is_named = [](const json& item) {
    return item.is_object() && item.contains("name") && item["name"].is_string() && item.contains("template") &&
           item["template"].is_string();
  };
  if (!found->is_array()) {
    throw Error::data("{}: chat_template is a JSON {}; it must be a text or a list of named templates.", path.string(),
                      found->type_name());
  }
  for (const json& item : *found) {
    if (!is_named(item)) {
      throw Error::data("{}: chat_template holds {}; each item must have texts under \"name\" and \"template\".",
                        path.string(), item.dump());
    }
    out.chat_templates[item["name"].get<std::string>()] = item["template"].get<std::string>();
  }
}

void add_template_files(const fs::path& folder, TokenizerConfig& out) {
  const fs::path single = folder / "chat_template.jinja";
  if (fs::exists(single)) out.chat_templates["default"] = read_file(single);
  const fs::path several = folder / "additional_chat_templates";
  if (!fs::is_directory(several)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(several)) {
    if (entry.path().extension() != ".jinja") continue;
    out.chat_templates[entry.path().stem().string()] = read_file(entry.path());
  }
}

std::optional<int64_t> read_max_length(const json& config, const fs::path& path) {
  const auto found = config.find("model_max_length");
  if (found == config.end() || found->is_null()) return std::nullopt;
  const double length = found->is_number() ? found->get<double>() : 0.0;
  if (!(length >= 1.0)) {
    throw Error::data("{}: model_max_length is {}; it must be a positive number.", path.string(), found->dump());
  }
  constexpr double kNoLimit = 1e18;
  if (length >= kNoLimit) return std::nullopt;
  return static_cast<int64_t>(length);
}

bool read_truncates_left(const json& config, const fs::path& path) {
  const auto found = config.find("truncation_side");
  if (found == config.end() || found->is_null() || *found == "right") return false;
  if (*found == "left") return true;
  throw Error::data("{}: truncation_side is {}; it must be \"right\" or \"left\".", path.string(), found->dump());
}

}  // namespace

TokenizerConfig read_tokenizer_config(const fs::path& folder) {
  const fs::path main_path = folder / "tokenizer_config.json";
  const fs::path map_path = folder / "special_tokens_map.json";
  const json main = read_object(main_path);
  TokenizerConfig config;
  add_special_tokens(main, main_path, json::object(), config);
  add_special_tokens(read_object(map_path), map_path, main, config);
  add_configured_templates(main, main_path, config);
  add_template_files(folder, config);
  config.model_max_length = read_max_length(main, main_path);
  config.truncates_left = read_truncates_left(main, main_path);
  return config;
}

}  // namespace lockstep::text
