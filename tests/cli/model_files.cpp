#include "model_files.h"

#include <cstring>
#include <fstream>

namespace lockstep::cli {
namespace {

void write(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

std::string bytes_of(uint64_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

/// Rounds toward zero; small values become zero. Good enough for a model that is refused.
uint16_t half_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + 15;
  if (exponent <= 0) return sign;
  return static_cast<uint16_t>(sign | exponent << 10 | (bits >> 13 & 0x3ff));
}

}  // namespace

RawSafetensors read_raw(const fs::path& file) {
  const std::string bytes = read_file(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return {Json::parse(bytes.substr(sizeof(length), length)), bytes.substr(sizeof(length) + length)};
}

void write_raw(const fs::path& file, const RawSafetensors& content, uint64_t claimed_length) {
  const std::string header = content.header.dump();
  write(file, bytes_of(claimed_length == 0 ? header.size() : claimed_length) + header + content.data);
}

void change_raw(const fs::path& file, const std::function<void(RawSafetensors&)>& change) {
  RawSafetensors content = read_raw(file);
  change(content);
  write_raw(file, content);
}

std::set<std::string> tensor_names(const fs::path& file) {
  std::set<std::string> names;
  const RawSafetensors content = read_raw(file);
  for (const auto& [name, entry] : content.header.items()) {
    if (name != "__metadata__") names.insert(name);
  }
  return names;
}

std::string dtype_of(const fs::path& file) {
  std::set<std::string> dtypes;
  const RawSafetensors content = read_raw(file);
  for (const auto& [name, entry] : content.header.items()) {
    if (name != "__metadata__") dtypes.insert(entry["dtype"].get<std::string>());
  }
  return dtypes.size() == 1 ? *dtypes.begin() : "mixed";
}

Json read_json(const fs::path& file) { return Json::parse(read_file(file)); }

void change_json(const fs::path& file, const std::function<void(Json&)>& change) {
  Json json = read_json(file);
  change(json);
  write(file, json.dump(2));
}

void convert_to_float16(const fs::path& file, const std::string& poisoned) {
  change_raw(file, [&](RawSafetensors& content) {
    std::string halves;
    for (auto& [name, entry] : content.header.items()) {
      if (name == "__metadata__") continue;
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1], start = halves.size();
      for (size_t at = begin; at < end; at += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, content.data.data() + at, sizeof(value));
        const uint16_t bits = name == poisoned && at == begin ? 0x7c00 : half_bits(value);
        halves.append({static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)});
      }
      entry["dtype"] = "F16";
      entry["data_offsets"] = {start, halves.size()};
    }
    content.data = halves;
  });
}

}  // namespace lockstep::cli
