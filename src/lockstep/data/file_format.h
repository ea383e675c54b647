#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "lockstep/base/files.h"

/// Which files hold rows, by their names.
namespace lockstep::data {

enum class FileFormat { Json, Csv, Tsv, Text, Parquet, Arrow };
enum class Compression { None, Gzip, Zstd };

/// .gz and .zst, whatever stands before them.
Compression compression_of(const std::filesystem::path& file);
/// By the extension (of .jsonl.gz: .jsonl), in any case; nothing for others. Parquet and Arrow compress by themselves.
std::optional<FileFormat> file_format(const std::filesystem::path& file);
/// ".jsonl, .ndjson, .json, .csv ...": for messages.
std::string_view readable_extensions();

/// The file, mapped; a compressed one is unpacked first into a file without a name in the folder for temporary files. Throws
/// Error{Data} for one that cannot be read, is damaged or ends early, Error{Environment} when there is no room for it.
MappedFile open_content(const std::filesystem::path& file);

}  // namespace lockstep::data
