#pragma once

#include "lockstep/data/file_format.h"

namespace lockstep::data {

/// See open_content(). Several members or frames behind each other are one content, as gzip and zstd have it.
MappedFile unpacked(const std::filesystem::path& file, Compression compression);

}  // namespace lockstep::data
