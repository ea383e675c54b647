#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

/// Typed reads from a JSON object whose errors name file, key and value.
namespace lockstep::model {

class JsonFields {
 public:
  /// Throws Error{Data} when the file cannot be read, is not JSON or is not an object.
  static JsonFields read(const std::filesystem::path& file);

  /// True when the key is there and not null.
  bool has(const std::string& key) const;
  bool is_null(const std::string& key) const;
  bool is_integer(const std::string& key) const;
  int64_t num_keys() const;

  /// Absent: the default. Null counts as absent; where transformers tells the two apart the caller asks first.
  int64_t integer(const std::string& key, int64_t absent) const;
  double real(const std::string& key, double absent) const;
  bool boolean(const std::string& key, bool absent) const;
  std::string text(const std::string& key, const std::string& absent) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<double> reals(const std::string& key) const;
  std::vector<int64_t> integers(const std::string& key) const;
  /// The key's object; an empty one when absent.
  JsonFields object(const std::string& key) const;

  /// Throws unless 1 <= value <= high.
  int64_t size(const std::string& key, int64_t absent, int64_t high) const;
  double positive(const std::string& key, double absent) const;

  /// "FILE: KEY = VALUE", the beginning of every message about a key.
  std::string where(const std::string& key) const;

 private:
  JsonFields(std::filesystem::path file, std::shared_ptr<const nlohmann::json> object, std::string prefix);

  std::filesystem::path file_;
  std::shared_ptr<const nlohmann::json> object_;
  std::string prefix_;                  ///< before keys in messages: "rope_parameters."
};

}  // namespace lockstep::model
