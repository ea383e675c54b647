#include "lockstep/tensor/safetensors.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/safetensors_header.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

namespace lockstep::tensor {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as huggingface/safetensors
constexpr std::size_t kLengthBytes = 8;
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string_view header_text(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kLengthBytes) {
    throw Error::data("{}: {} bytes are too few for a safetensors file. It is cut off: fetch it again.", where,
                      bytes.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeaderBytes) {
    throw Error::data("{}: it claims a header of {} bytes, at most {} are allowed. Is this a safetensors file?", where,
                      length, kMaxHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    throw Error::data("{}: it claims a header of {} bytes but only {} follow. It is cut off: fetch it again.", where,
                      length, bytes.size() - kLengthBytes);
  }
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, static_cast<std::size_t>(length)};
}

/// Index files name their shards by plain file names; a path could lead anywhere.
void require_plain_name(const std::string& file, const fs::path& index) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos) {
    throw Error::data("{}: weight_map names the file '{}', which is not a plain file name.", index.string(), file);
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  const std::string where = path.string();
  const std::string_view json = header_text(file_.bytes(), where);
  data_offset_ = kLengthBytes + json.size();
  detail::SafetensorsHeader header =
      detail::parse_safetensors_header(json, file_.bytes().size() - data_offset_, where);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    throw Error::data("{}: there is no tensor '{}' among its {}.", file_.path().string(), name, entries_.size());
  }
  const SafetensorsEntry& entry = found->second;
  const std::byte* data = file_.bytes().data() + data_offset_ + entry.begin;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(entry.dtype) != 0) {
    at::Tensor copy = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
    std::memcpy(copy.data_ptr(), data, copy.nbytes());
    return copy;
  }
  // from_blob has no read-only form; the header forbids writing.
  return at::from_blob(const_cast<std::byte*>(data), entry.shape, at::TensorOptions().dtype(entry.dtype));
}

WeightFiles WeightFiles::open(const fs::path& folder) {
  WeightFiles weights;
  weights.folder_ = folder;
  const fs::path single = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(single)) {
    weights.files_.push_back(std::make_shared<SafetensorsFile>(single));
    weights.file_names_.push_back("model.safetensors");
    for (const auto& [name, entry] : weights.files_[0]->entries()) {
      weights.file_of_.emplace(name, 0);
    }
    return weights;
  }
  if (!fs::exists(index)) {
    throw Error::data("{}: there is neither model.safetensors nor model.safetensors.index.json{}.", folder.string(),
                      fs::exists(folder / "pytorch_model.bin")
                          ? ". It has a pytorch_model.bin: convert it with save_pretrained(safe_serialization=True)"
                          : ". Name a Hugging Face model folder");
  }
  weights.open_shards(folder, index);
  return weights;
}

void WeightFiles::open_shards(const fs::path& folder, const fs::path& index) {
  const auto weight_map = detail::parse_weight_map(read_file(index), index.string());
  std::map<std::string, std::size_t> number_of;
  for (const auto& [name, file] : weight_map) {
    require_plain_name(file, index);
    number_of.emplace(file, 0);
  }
  for (auto& [file, number] : number_of) {
    if (!fs::exists(folder / file)) {
      throw Error::data("{}: the file {} that it names is missing. Fetch the whole model.", index.string(), file);
    }
    number = files_.size();
    files_.push_back(std::make_shared<SafetensorsFile>(folder / file));
    file_names_.push_back(file);
  }
  for (const auto& [name, file] : weight_map) {
    const std::size_t number = number_of.at(file);
    if (!files_[number]->entries().contains(name)) {
      const auto other = std::find_if(files_.begin(), files_.end(),
                                      [&key = name](const auto& shard) { return shard->entries().contains(key); });
      const auto other_number = static_cast<std::size_t>(other - files_.begin());
      const std::string place = other == files_.end() ? "no file has it" : "it is in " + file_names_[other_number];
      throw Error::data("{}: tensor '{}' should be in {}, but {}. Fetch the whole model again.", index.string(), name,
                        file, place);
    }
    file_of_.emplace(name, number);
  }
  for (std::size_t number = 0; number < files_.size(); ++number) {
    for (const auto& [name, entry] : files_[number]->entries()) {
      if (file_of_.emplace(name, number).first->second != number) {
        throw Error::data("{}: tensor '{}' is in {} and in {}. Fetch the whole model again.", index.string(), name,
                          file_names_[file_of_.at(name)], file_names_[number]);
      }
    }
  }
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, number] : file_of_) {
    names.push_back(name);
  }
  return names;
}

bool WeightFiles::contains(const std::string& name) const { return file_of_.contains(name); }

std::size_t WeightFiles::number_of(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) {
    throw Error::data("the model's weights have no tensor '{}' (they have {} others).", name, file_of_.size());
  }
  return found->second;
}

at::Tensor WeightFiles::tensor(const std::string& name) const { return files_[number_of(name)]->tensor(name); }

std::string WeightFiles::file_of(const std::string& name) const { return files_[number_of(name)]->path().string(); }

void write_safetensors(const fs::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const int rank_a = detail::dtype_rank(a.tensor.scalar_type());
    const int rank_b = detail::dtype_rank(b.tensor.scalar_type());
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  std::vector<detail::HeaderLine> lines;
  std::set<std::string> names;
  for (const NamedTensor& item : tensors) {
    LS_CHECK(item.tensor.is_contiguous() && item.tensor.device().is_cpu(), "tensor {} is not a contiguous CPU tensor",
             item.name);
    LS_CHECK(item.name != "__metadata__" && names.insert(item.name).second, "the name {} is taken", item.name);
    lines.push_back({item.name, item.tensor.scalar_type(), item.tensor.sizes().vec(), item.tensor.nbytes()});
  }
  const std::string header = detail::format_safetensors_header(lines, metadata);
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const NamedTensor& item : tensors) {
    file.write({static_cast<const std::byte*>(item.tensor.const_data_ptr()), item.tensor.nbytes()});
  }
  file.commit();
}

}  // namespace lockstep::tensor
