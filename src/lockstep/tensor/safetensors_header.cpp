#include "lockstep/tensor/safetensors_header.h"

#include "lockstep/base/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

namespace lockstep::tensor::detail {
namespace {

using Json = nlohmann::json;

struct DtypeName {
  std::string_view name;
  at::ScalarType dtype;
};

/// In the order of the enum `Dtype` of huggingface/safetensors (safetensors/src/tensor.rs), which is also the order
/// of the written data, from the last to the first.
constexpr std::array kDtypes = {
    DtypeName{"BOOL", at::kBool},     DtypeName{"U8", at::kByte},    DtypeName{"I8", at::kChar},
    DtypeName{"I16", at::kShort},     DtypeName{"F16", at::kHalf},   DtypeName{"BF16", at::kBFloat16},
    DtypeName{"I32", at::kInt},       DtypeName{"F32", at::kFloat},  DtypeName{"F64", at::kDouble},
    DtypeName{"I64", at::kLong},
};

constexpr int kMaxDepth = 3;  // tensor table, tensor, shape

/// Parses, refusing what nlohmann's parser would let pass: the same key twice in one object, and deep nesting.
Json parse_strictly(std::string_view text, const std::string& where, std::string_view what) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) {
      throw Error::data("{}: the {} nests deeper than {} levels. The file is damaged: fetch it again.", where, what,
                        kMaxDepth);
    }
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw Error::data("{}: the {} names '{}' twice. The file is damaged: fetch it again.", where, what,
                        parsed.get<std::string>());
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& problem) {
    throw Error::data("{}: the {} is not valid JSON ({}). The file is damaged: fetch it again.", where, what,
                      problem.what());
  }
}

std::optional<at::ScalarType> dtype_from_name(std::string_view name) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeName& d) { return d.name == name; });
  return found == kDtypes.end() ? std::nullopt : std::optional(found->dtype);
}

/// A JSON integer from 0 to 2^63 - 1.
std::optional<int64_t> as_size(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

std::vector<int64_t> sizes_from(const Json& list, const std::string& where, const std::string& name,
                                std::string_view key) {
  std::vector<int64_t> sizes;
  for (const Json& item : list) {
    const auto size = as_size(item);
    if (!size) {
      throw Error::data("{}: tensor '{}' has {} {}, which are not all whole numbers from 0. Fetch the file again.",
                        where, name, key, list.dump());
    }
    sizes.push_back(*size);
  }
  return sizes;
}

/// Nothing when the product does not fit.
std::optional<std::size_t> num_bytes(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  std::size_t bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

SafetensorsEntry parse_entry(const std::string& name, const Json& value, std::size_t data_bytes,
                             const std::string& where) {
  const bool well_formed = value.is_object() && value.size() == 3 && value.contains("dtype") &&
                           value["dtype"].is_string() && value.contains("shape") && value["shape"].is_array() &&
                           value.contains("data_offsets") && value["data_offsets"].is_array() &&
                           value["data_offsets"].size() == 2;
  if (!well_formed) {
    throw Error::data("{}: the header's entry for '{}' is {}, not dtype, shape and two data_offsets. Fetch the file "
                      "again.",
                      where, name, value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 200));
  }
  const auto dtype_name = value["dtype"].get<std::string>();
  const auto dtype = dtype_from_name(dtype_name);
  if (!dtype) {
    throw Error::data("{}: tensor '{}' has dtype '{}', which lockstep does not read. Convert the model to F32, F16 or "
                      "BF16.",
                      where, name, dtype_name);
  }
  SafetensorsEntry entry{.dtype = *dtype, .shape = sizes_from(value["shape"], where, name, "a shape of")};
  const std::vector<int64_t> offsets = sizes_from(value["data_offsets"], where, name, "data_offsets");
  entry.begin = static_cast<std::size_t>(offsets[0]);
  entry.end = static_cast<std::size_t>(offsets[1]);
  if (entry.begin > entry.end || entry.end > data_bytes) {
    throw Error::data("{}: tensor '{}' claims bytes {} to {} of {} bytes of data. It is cut off or damaged: fetch it "
                      "again.",
                      where, name, entry.begin, entry.end, data_bytes);
  }
  const auto wanted = num_bytes(entry.shape, entry.dtype);
  if (!wanted || *wanted != entry.end - entry.begin) {
    throw Error::data("{}: tensor '{}' of shape {} and dtype {} needs {} bytes but has {}. Fetch the file again.",
                      where, name, value["shape"].dump(), dtype_name,
                      wanted ? std::to_string(*wanted) : "more than 2^64", entry.end - entry.begin);
  }
  return entry;
}

std::map<std::string, std::string> parse_metadata(const Json& value, const std::string& where) {
  std::map<std::string, std::string> metadata;
  const bool texts_only = value.is_object() && std::all_of(value.begin(), value.end(),
                                                           [](const Json& item) { return item.is_string(); });
  if (!texts_only) {
    throw Error::data("{}: __metadata__ is not a table of texts. Fetch the file again.", where);
  }
  for (const auto& [key, text] : value.items()) {
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

/// The tensors must cover the data without overlap and without holes.
void check_coverage(const std::map<std::string, SafetensorsEntry>& entries, std::size_t data_bytes,
                    const std::string& where) {
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> in_order;
  for (const auto& [name, entry] : entries) {
    in_order.emplace_back(&entry, &name);
  }
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  std::size_t covered = 0;
  for (const auto& [entry, name] : in_order) {
    if (entry->begin != covered) {
      throw Error::data("{}: tensor '{}' begins at byte {} of the data, where {} was expected: {}. Fetch the file "
                        "again.",
                        where, *name, entry->begin, covered,
                        entry->begin < covered ? "it overlaps another tensor" : "there is a hole before it");
    }
    covered = entry->end;
  }
  if (covered != data_bytes) {
    throw Error::data("{}: the tensors end at byte {} of {} bytes of data. Fetch the file again.", where, covered,
                      data_bytes);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::size_t data_bytes, const std::string& where) {
  const Json table = parse_strictly(json, where, "header");
  if (!table.is_object()) {
    throw Error::data("{}: the header is not a JSON table. Is this a safetensors file?", where);
  }
  SafetensorsHeader header;
  for (const auto& [name, value] : table.items()) {
    if (name == "__metadata__") {
      header.metadata = parse_metadata(value, where);
    } else {
      header.entries.emplace(name, parse_entry(name, value, data_bytes, where));
    }
  }
  check_coverage(header.entries, data_bytes, where);
  return header;
}

std::map<std::string, std::string> parse_weight_map(std::string_view json, const std::string& where) {
  const Json index = parse_strictly(json, where, "index");
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() ||
      index["weight_map"].empty()) {
    throw Error::data("{}: there is no table 'weight_map' that names the file of each tensor. Fetch the file again.",
                      where);
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) {
      throw Error::data("{}: weight_map gives {} as the file of '{}'. Fetch the file again.", where, file.dump(), name);
    }
    files.emplace(name, file.get<std::string>());
  }
  return files;
}

int dtype_rank(at::ScalarType dtype) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeName& d) { return d.dtype == dtype; });
  LS_CHECK(found != kDtypes.end(), "safetensors has no name for dtype {}", c10::toString(dtype));
  return static_cast<int>(found - kDtypes.begin());
}

std::string format_safetensors_header(const std::vector<HeaderLine>& lines,
                                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json table = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    table["__metadata__"] = metadata;
  }
  std::size_t offset = 0;
  for (const HeaderLine& line : lines) {
    nlohmann::ordered_json entry;
    entry["dtype"] = kDtypes[static_cast<std::size_t>(dtype_rank(line.dtype))].name;
    entry["shape"] = line.shape;
    entry["data_offsets"] = {offset, offset + line.bytes};
    table[line.name] = std::move(entry);
    offset += line.bytes;
  }
  std::string text = table.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace lockstep::tensor::detail
