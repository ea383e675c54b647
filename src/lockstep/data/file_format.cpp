#include "lockstep/data/file_format.h"

#include "lockstep/data/unpack.h"

#include <cctype>
#include <string>

namespace lockstep::data {
namespace {

std::string small_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return extension;
}

}  // namespace

Compression compression_of(const fs::path& file) {
  const std::string extension = small_extension(file);
  if (extension == ".gz") return Compression::Gzip;
  if (extension == ".zst" || extension == ".zstd") return Compression::Zstd;
  return Compression::None;
}

std::optional<FileFormat> file_format(const fs::path& file) {
  const bool compressed = compression_of(file) != Compression::None;
  const std::string extension = small_extension(compressed ? file.stem() : file);
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json") return FileFormat::Json;
  if (extension == ".csv") return FileFormat::Csv;
  if (extension == ".tsv") return FileFormat::Tsv;
  if (extension == ".txt") return FileFormat::Text;
  if (extension == ".parquet" && !compressed) return FileFormat::Parquet;
  if (extension == ".arrow" && !compressed) return FileFormat::Arrow;
  return std::nullopt;
}

std::string_view readable_extensions() {
  return ".jsonl, .ndjson, .json, .csv, .tsv and .txt (also with .gz or .zst), .parquet and .arrow";
}

MappedFile open_content(const fs::path& file) {
  const Compression compression = compression_of(file);
  return compression == Compression::None ? MappedFile(file) : unpacked(file, compression);
}

}  // namespace lockstep::data
