#include "lockstep/data/unpack.h"

#include "lockstep/base/error.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

/// A file that vanishes with its last user.
class NamelessFile {
 public:
  explicit NamelessFile(const fs::path& content_of) : content_of_(content_of) {
    std::string name = (fs::temp_directory_path() / "lockstep-unpacked-XXXXXX").string();
    fd_ = UniqueFd(::mkstemp(name.data()));
    if (fd_.get() < 0) fail("mkstemp in " + fs::temp_directory_path().string());
    ::unlink(name.c_str());
  }

  void write(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail("write in " + fs::temp_directory_path().string());
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }

  MappedFile map() const { return MappedFile(fs::path("/proc/self/fd") / std::to_string(fd_.get())); }

 private:
  [[noreturn]] void fail(const std::string& doing) const {
    throw Error::environment("{}: cannot be unpacked: {}: {}. Make room there, or let TMPDIR name another folder.",
                             content_of_.string(), doing, std::strerror(errno));
  }

  fs::path content_of_;
  UniqueFd fd_;
};

[[noreturn]] void throw_damaged(const fs::path& file, std::string_view format, std::string_view what) {
  throw Error::data("{}: is damaged or no {} file: {}. Fetch or compress it again.", file.string(), format, what);
}

constexpr std::string_view kEndsEarly = "it ends too early";

void unpack_gzip(std::span<const std::byte> input, const fs::path& file, NamelessFile& out) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzip) != Z_OK) throw Error::internal("inflateInit2 failed");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::vector<char> piece(kPieceBytes);
  int status = Z_STREAM_END;
  size_t at = 0;
  while (at < input.size() || status == Z_OK) {
    if (status == Z_STREAM_END) inflateReset(&stream);  // the next member
    const size_t given = std::min(input.size() - at, size_t{1} << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data() + at));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&stream, Z_NO_FLUSH);
    const size_t used = given - stream.avail_in, made = piece.size() - stream.avail_out;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      throw_damaged(file, "gzip", stream.msg == nullptr ? "wrong data" : stream.msg);
    }
    if (status != Z_STREAM_END && used == 0 && made == 0) throw_damaged(file, "gzip", kEndsEarly);
    at += used;
    out.write(std::span(piece).first(made));
  }
  if (status != Z_STREAM_END || input.empty()) throw_damaged(file, "gzip", kEndsEarly);
}

void unpack_zstd(std::span<const std::byte> input, const fs::path& file, NamelessFile& out) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  std::vector<char> piece(kPieceBytes);
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  size_t rest = 1;  // 0 after a whole frame
  while (true) {
    ZSTD_outBuffer made{piece.data(), piece.size(), 0};
    rest = ZSTD_decompressStream(stream.get(), &made, &in);
    if (ZSTD_isError(rest) != 0) throw_damaged(file, "zstd", ZSTD_getErrorName(rest));
    out.write(std::span(piece).first(made.pos));
    if (in.pos == in.size && made.pos < made.size) break;
  }
  if (rest != 0) throw_damaged(file, "zstd", kEndsEarly);
}

}  // namespace

MappedFile unpacked(const fs::path& file, Compression compression) {
  const MappedFile packed(file);
  NamelessFile out(file);
  if (compression == Compression::Gzip) {
    unpack_gzip(packed.bytes(), file, out);
  } else {
    unpack_zstd(packed.bytes(), file, out);
  }
  return out.map();
}

}  // namespace lockstep::data
