#include "lockstep/checkpoint/manifest.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>

namespace lockstep::checkpoint {
namespace {

constexpr const char* kManifestFormat = "lockstep-checkpoint-1";

nlohmann::ordered_json files_to_json(const std::vector<ManifestFile>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const ManifestFile& file : files) {
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"hash", to_hex(file.hash)}});
  }
  return list;
}

/// Throws nlohmann's exceptions and std::invalid_argument, which the callers turn into words about the file.
std::vector<ManifestFile> files_from_json(const nlohmann::ordered_json& list) {
  std::vector<ManifestFile> files;
  for (const auto& item : list) {
    ManifestFile file{.name = item.at("name").get<std::string>(), .bytes = item.at("bytes").get<int64_t>()};
    const auto hex = item.at("hash").get<std::string>();
    const auto [end, problem] = std::from_chars(hex.data(), hex.data() + hex.size(), file.hash, 16);
    if (problem != std::errc() || end != hex.data() + hex.size() || hex.size() != 16) {
      throw std::invalid_argument(fmt::format("the hash '{}' is not 16 hexadecimal digits", hex));
    }
    // A path could lead anywhere.
    const fs::path path(file.name);
    const bool leads_out = std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
    if (file.name.empty() || path.is_absolute() || leads_out) {
      throw std::invalid_argument(fmt::format("'{}' is not a file in the checkpoint", file.name));
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

const ManifestFile* Manifest::find(std::string_view name) const {
  const auto found = std::find_if(files.begin(), files.end(), [&](const ManifestFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

std::string format_manifest(const Manifest& manifest) {
  const nlohmann::ordered_json json = {{"format", kManifestFormat},
                                       {"update", manifest.update},
                                       {"world_size", manifest.world_size},
                                       {"weights_dtype", manifest.weights_dtype},
                                       {"optimizer", manifest.optimizer},
                                       {"files", files_to_json(manifest.files)}};
  return json.dump(2) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    if (const auto format = json.at("format").get<std::string>(); format != kManifestFormat) {
      throw std::invalid_argument(fmt::format("its format is '{}', this program reads '{}'", format, kManifestFormat));
    }
    Manifest manifest{.update = json.at("update").get<int64_t>(),
                      .world_size = json.at("world_size").get<int>(),
                      .weights_dtype = json.at("weights_dtype").get<std::string>(),
                      .optimizer = json.at("optimizer").get<bool>(),
                      .files = files_from_json(json.at("files"))};
    if (manifest.world_size < 1) throw std::invalid_argument("world_size is below 1");
    return manifest;
  } catch (const std::exception& problem) {
    throw Error::data("{}: is not the manifest of a checkpoint ({}). Resume from another checkpoint.", where,
                      problem.what());
  }
}

std::string part_file(int rank, int world_size) {
  return fmt::format("optimizer/part-{}-of-{}.safetensors", rank, world_size);
}

std::string format_report(const RankReport& report) {
  return nlohmann::ordered_json({{"rank", report.rank},
                                 {"error", report.error},
                                 {"error_kind", report.error_kind},
                                 {"files", files_to_json(report.files)}})
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

RankReport parse_report(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text);
  return {.rank = json.at("rank").get<int>(),
          .error = json.at("error").get<std::string>(),
          .error_kind = json.at("error_kind").get<std::string>(),
          .files = files_from_json(json.at("files"))};
}

std::vector<ManifestFile> merge_reports(std::span<const RankReport> reports) {
  std::map<std::string, ManifestFile> merged;
  for (const RankReport& report : reports) {
    for (const ManifestFile& file : report.files) {
      ManifestFile& sum = merged[file.name];
      sum.name = file.name;
      sum.bytes += file.bytes;
      sum.hash += file.hash;
    }
  }
  std::vector<ManifestFile> files;
  for (auto& [name, file] : merged) files.push_back(std::move(file));
  return files;
}

}  // namespace lockstep::checkpoint
