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
  Origins origins;
  std::string key = "command";
  try {
    const Json root = Json::parse(text);
    if (root.at("command") != command) {
      throw Error::usage("{}: these are options of '{}', not of '{}'.", where, root.at("command").dump(), command);
    }
    const Json& all = root.at("options");
    size_t num_read = 0;
    for (const Field& field : fields) {
      if (field.spec.is_secret) continue;
      key = field.spec.key;
      const Json& entry = all.at(key);
      std::visit([&](auto* member) { read_into(entry.at("value"), *member); }, field.target);
      const Origin origin = Origin::from_text(entry.at("origin").get<std::string>());
      if (origin.kind != Origin::Kind::Default) origins[key] = origin;
      ++num_read;
    }
    if (all.size() != num_read) {
      for (const auto& [name, entry] : all.items()) {
        if (find(fields, name) == nullptr) throw Error::usage("{}: unknown option {}.", where, name);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error::usage("{}: cannot be read at '{}': {}. It must be a file that this version of lockstep wrote.", where,
                       key, error.what());
  }
  return origins;
}

}  // namespace lockstep::options
