#include "lockstep/checkpoint/file_hash.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/tensor/param_layout.h"
#include "lockstep/tensor/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

namespace lockstep::checkpoint {
namespace {

/// Consecutive pieces of one tensor.
struct Stretch {
  size_t begin = 0, end = 0;  ///< bytes from the start of the file
  size_t piece_bytes = 0;
};

constexpr size_t kPiecesPerStretch = 256;

/// The head is a piece of its own.
std::vector<Stretch> stretches_of(std::span<const std::byte> bytes, const std::string& where) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) throw Error::data("{}: is too short for a safetensors file", where);
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length) throw Error::data("{}: its header was changed or is cut off", where);
  const size_t head = sizeof length + static_cast<size_t>(length);
  const std::string_view json(reinterpret_cast<const char*>(bytes.data()) + sizeof length, static_cast<size_t>(length));
  std::vector<Stretch> stretches{{0, head, head}};
  for (const auto& [name, entry] : tensor::detail::parse_safetensors_header(json, bytes.size() - head, where).entries) {
    const size_t piece = static_cast<size_t>(tensor::kPieceElements) * c10::elementSize(entry.dtype);
    for (size_t begin = entry.begin; begin < entry.end; begin += kPiecesPerStretch * piece) {
      stretches.push_back({head + begin, head + std::min(entry.end, begin + kPiecesPerStretch * piece), piece});
    }
  }
  return stretches;
}

}  // namespace

uint64_t hash_of_file(const fs::path& path, ThreadTeam* team) {
  const MappedFile file(path);
  if (path.extension() != ".safetensors") return hash_bytes(file.bytes());
  const std::vector<Stretch> stretches = stretches_of(file.bytes(), path.string());
  PieceHash sum;
  std::mutex mutex;  // guards sum
  const auto add = [&](size_t item, int) {
    const Stretch& stretch = stretches[item];
    PieceHash part;
    for (size_t begin = stretch.begin; begin < stretch.end; begin += stretch.piece_bytes) {
      const size_t bytes = std::min(stretch.piece_bytes, stretch.end - begin);
      part.add(begin, file.bytes().subspan(begin, bytes));
    }
    const std::lock_guard lock(mutex);
    sum.merge(part.value());
  };
  if (team != nullptr) {
    team->run(stretches.size(), add);
  } else {
    for (size_t item = 0; item < stretches.size(); ++item) add(item, 0);
  }
  return sum.value();
}

}  // namespace lockstep::checkpoint
