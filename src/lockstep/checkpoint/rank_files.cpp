#include "lockstep/checkpoint/rank_files.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

namespace lockstep::checkpoint {
namespace {

using tensor::kPieceElements;

/// Elements that are converted, hashed and written at a time: 1 MiB of float32.
constexpr int64_t kElementsPerWrite = 64 * kPieceElements;

/// Are all exponents below the highest one, which is that of NaN and infinity?
template <class Word>
bool all_below(const std::byte* bytes, int64_t count, Word exponent) {
  const auto* words = reinterpret_cast<const Word*>(bytes);
  int found = 0;
  for (int64_t i = 0; i < count; ++i) found |= static_cast<int>((words[i] & exponent) == exponent);
  return found == 0;
}

bool all_finite(const std::byte* bytes, int64_t count, at::ScalarType dtype) {
  if (dtype == at::kFloat) return all_below<uint32_t>(bytes, count, 0x7f80'0000);
  return all_below<uint16_t>(bytes, count, dtype == at::kBFloat16 ? 0x7f80 : 0x7c00);
}

/// One file being written by this rank, with what it will say of it.
struct OpenFile {
  OpenFile(Disk& disk, const fs::path& folder, const std::string& name)
      : file(disk, folder / name), said{.name = name} {}

  void write(std::span<const std::byte> bytes, int64_t offset, std::atomic<int64_t>& written) {
    file.write(bytes, offset);
    said.bytes += static_cast<int64_t>(bytes.size());
    written += static_cast<int64_t>(bytes.size());
  }
  void write_head(const std::string& head, std::atomic<int64_t>& written) {
    const auto bytes = std::as_bytes(std::span(head.data(), head.size()));
    add_hash(bytes, 0);
    write(bytes, 0, written);
  }
  void add_hash(std::span<const std::byte> piece, int64_t offset) {
    PieceHash hash;
    hash.add(static_cast<uint64_t>(offset), piece);
    said.hash += hash.value();
  }

  PlacedFile file;
  ManifestFile said;
};

/// A slice and the place of its first byte.
struct PlacedSlice {
  const LiveSlice* slice = nullptr;
  OpenFile* file = nullptr;
  int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
};

class RankWriter {
 public:
  RankWriter(const CheckpointJob& job, const fs::path& folder, RankShare share, Disk& disk, const std::stop_token& stop,
             std::atomic<int64_t>& written)
      : job_(job), folder_(folder), share_(share), disk_(disk), stop_(stop), written_(written) {}

  std::vector<ManifestFile> run(const std::function<void()>& released) {
    place_weights();
    if (job_.optimizer) place_part();
    for (const PlacedSlice& placed : slices_) write_slice(placed);
    released();
    std::vector<ManifestFile> said;
    for (auto& [name, open] : open_) {
      open->file.finish();
      said.push_back(open->said);
    }
    if (share_.rank == 0) write_small_files(said);
    return said;
  }

 private:
  OpenFile& open(const std::string& name) {
    std::unique_ptr<OpenFile>& file = open_[name];
    if (!file) file = std::make_unique<OpenFile>(disk_, folder_, name);
    return *file;
  }

  void place_weights() {
    weight_files_ = plan_weight_files(job_.weights, job_.max_shard_bytes);
    std::unordered_map<std::string_view, const LiveSlice*> masters;
    for (const LiveSlice& slice : job_.slices) {
      if (slice.state == kMaster) masters.emplace(slice.param, &slice);
    }
    size_t placed = 0;
    for (const FilePlan& plan : weight_files_) {
      if (share_.rank == 0) open(plan.file).write_head(plan.head, written_);
      for (size_t i = 0; i < plan.tensors.size(); ++i) {
        const auto found = masters.find(plan.tensors[i].name);
        if (found == masters.end()) continue;
        const at::ScalarType dtype = plan.tensors[i].dtype;
        const auto size = static_cast<int64_t>(c10::elementSize(dtype));
        const LiveSlice& slice = *found->second;
        LS_CHECK(slice.numel * size == plan.tensors[i].num_bytes() && slice.begin % kPieceElements == 0,
                 "{}: elements {} to {} of {}", slice.param, slice.begin, slice.end, slice.numel);
        slices_.push_back({&slice, &open(plan.file), plan.offsets[i] + slice.begin * size, dtype});
        ++placed;
      }
    }
    LS_CHECK(placed == masters.size(), "{} of {} masters belong to the model", placed, masters.size());
  }

  void place_part() {
    const bool masters_too = std::any_of(job_.weights.begin(), job_.weights.end(),
                                         [](const TensorPlan& plan) { return plan.dtype != at::kFloat; });
    std::vector<TensorPlan> tensors;
    std::map<std::string, const LiveSlice*> slice_of;
    std::map<std::string, std::string> metadata{{"format", "lockstep-optimizer-2"}};
    for (const LiveSlice& slice : job_.slices) {
      if ((slice.state == kMaster && !masters_too) || slice.begin == slice.end) continue;
      const std::string name = slice.param + "." + slice.state;
      LS_CHECK(slice_of.emplace(name, &slice).second, "two slices of {}", name);
      tensors.push_back({name, at::kFloat, {slice.end - slice.begin}});
      metadata[name] = fmt::format("{} {} {}", slice.begin, slice.end, slice.numel);
    }
    const FilePlan plan = plan_file(part_file(share_.rank, share_.world_size), std::move(tensors), metadata);
    make_folder(disk_, (folder_ / plan.file).parent_path());
    OpenFile& file = open(plan.file);
    file.write_head(plan.head, written_);
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      slices_.push_back({slice_of.at(plan.tensors[i].name), &file, plan.offsets[i], at::kFloat});
    }
  }

  void write_slice(const PlacedSlice& placed) {
    const LiveSlice& slice = *placed.slice;
    const auto size = static_cast<int64_t>(c10::elementSize(placed.dtype));
    for (int64_t first = 0; first < slice.end - slice.begin; first += kElementsPerWrite) {
      if (stop_.stop_requested()) throw Error::internal("the save was given up");
      const int64_t count = std::min(kElementsPerWrite, slice.end - slice.begin - first);
      const std::byte* bytes = stored(slice.values + first, count, placed.dtype);
      if (slice.state == kMaster && !all_finite(bytes, count, placed.dtype)) refuse(slice, first, count, placed.dtype);
      const int64_t offset = placed.offset + first * size;
      for (int64_t piece = 0; piece < count; piece += kPieceElements) {
        const int64_t elements = std::min(kPieceElements, count - piece);
        placed.file->add_hash({bytes + piece * size, static_cast<size_t>(elements * size)}, offset + piece * size);
      }
      placed.file->write({bytes, static_cast<size_t>(count * size)}, offset, written_);
    }
  }

  /// float32 is written from where it lives.
  const std::byte* stored(const float* values, int64_t count, at::ScalarType dtype) {
    if (dtype == at::kFloat) return reinterpret_cast<const std::byte*>(values);
    if (!buffer_.defined()) buffer_ = at::empty({kElementsPerWrite}, dtype);
    buffer_.narrow(0, 0, count).copy_(at::from_blob(const_cast<float*>(values), {count}, at::kFloat));
    return static_cast<const std::byte*>(buffer_.const_data_ptr());
  }

  [[noreturn]] void refuse(const LiveSlice& slice, int64_t first, int64_t count, at::ScalarType dtype) const {
    if (all_finite(reinterpret_cast<const std::byte*>(slice.values + first), count, at::kFloat)) {
      throw Error::non_finite("{} holds values beyond the range of {}, so no checkpoint is taken. Use --dtype float32.",
                              slice.param, dtype_name(dtype));
    }
    throw Error::non_finite("after update {} the weights of {} hold NaN or infinite values, so no checkpoint is taken. "
                            "Lower --learning_rate.",
                            job_.update, slice.param);
  }

  void write_small_files(std::vector<ManifestFile>& said) {
    if (weight_files_.size() > 1) write_small({kIndexFile, weight_index(weight_files_)}, said);
    for (const SmallFile& file : job_.files) write_small(file, said);
  }

  void write_small(const SmallFile& file, std::vector<ManifestFile>& said) {
    make_parents(file.name);
    write_whole_file(disk_, folder_ / file.name, file.content);
    const auto bytes = std::as_bytes(std::span(file.content.data(), file.content.size()));
    said.push_back({file.name, static_cast<int64_t>(bytes.size()), hash_bytes(bytes)});
  }

  void make_parents(const std::string& name) {
    fs::path folder = folder_;
    for (const fs::path& part : fs::path(name).parent_path()) make_folder(disk_, folder /= part);
  }

  const CheckpointJob& job_;
  const fs::path& folder_;
  const RankShare share_;
  Disk& disk_;
  const std::stop_token& stop_;
  std::atomic<int64_t>& written_;
  std::vector<FilePlan> weight_files_;
  std::map<std::string, std::unique_ptr<OpenFile>> open_;
  std::vector<PlacedSlice> slices_;  ///< in the order of the files
  at::Tensor buffer_;
};

}  // namespace

std::vector<ManifestFile> write_rank_files(const CheckpointJob& job, const fs::path& folder, RankShare share, Disk& disk,
                                           const std::stop_token& stop, const std::function<void()>& released,
                                           std::atomic<int64_t>& written) {
  return RankWriter(job, folder, share, disk, stop, written).run(released);
}

}  // namespace lockstep::checkpoint
