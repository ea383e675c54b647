#include "lockstep/options/json.h"

#include <nlohmann/json.hpp>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep::options {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json json_of(const T& value) {
  return value;
}
template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
void read_into(const Json& json, T& value) {
  json.get_to(value);
}
template <class T>
void read_into(const Json& json, std::optional<T>& value) {
  if (json.is_null()) value.reset();
  else value = json.get<T>();
}

Error not_ours(std::string_view where, const std::string& what) {
  return Error::data("{}: {}. It must be a file that this version of lockstep wrote; was it edited?", where, what);
}

std::string brief(const Json& value) {
  constexpr size_t kLongest = 60;
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

/// `path`: of the member, for the message.
const Json& member(const Json& table, const char* name, std::string_view where, const std::string& path) {
  const auto found = table.is_object() ? table.find(name) : table.end();
  if (!table.is_object() || found == table.end()) throw not_ours(where, fmt::format("has no '{}'", path));
  return *found;
}

void read_entry(const Field& field, const Json& entry, std::string_view where, Origins& origins) {
  const std::string path = "options." + field.spec.key;
  const Json& value = member(entry, "value", where, path + ".value");
  const Json& origin = member(entry, "origin", where, path + ".origin");
  try {
    std::visit([&](auto* target) { read_into(value, *target); }, field.target);
  } catch (const Json::exception&) {
    throw not_ours(where, fmt::format("has {} as '{}.value', which is no value of that option", brief(value), path));
  }
  if (!origin.is_string()) throw not_ours(where, fmt::format("has {} as '{}.origin' instead of a text", brief(origin), path));
  const Origin read = Origin::from_text(origin.get<std::string>());
  if (read.kind != Origin::Kind::Default) origins[field.spec.key] = read;
}

}  // namespace

std::string dump_json(const Fields& fields, const Origins& origins, std::string_view command) {
  Json all = Json::object();
  for (const Field& field : fields) {
    if (field.spec.is_secret) continue;
    all[field.spec.key] = {{"value", std::visit([](const auto& held) { return json_of(held); }, field.value())},
                           {"origin", origin_of(origins, field.spec.key).text()}};
  }
  return Json{{"command", command}, {"options", std::move(all)}}.dump(1) + "\n";
}

Origins load_json(std::string_view text, const Fields& fields, std::string_view command, std::string_view where) {
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) throw not_ours(where, root.is_discarded() ? "is no JSON" : "is no JSON object");
  const Json& written = member(root, "command", where, "command");
  if (written != command) {
    throw not_ours(where, fmt::format("has options of {}, not of \"{}\"", brief(written), command));
  }
  const Json& all = member(root, "options", where, "options");
  if (!all.is_object()) throw not_ours(where, fmt::format("has {} as 'options' instead of a table", brief(all)));
  if (all.empty()) throw not_ours(where, "has an empty table of 'options'");
  Origins origins;
  for (const Field& field : fields) {
    const auto entry = all.find(field.spec.key);
    if (!field.spec.is_secret && entry != all.end()) read_entry(field, *entry, where, origins);
  }
  for (const auto& [name, entry] : all.items()) {
    if (find(fields, name) == nullptr) throw not_ours(where, fmt::format("has an unknown option '{}'", name));
  }
  return origins;
}

}  // namespace lockstep::options
