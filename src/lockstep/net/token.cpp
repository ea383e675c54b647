#include "lockstep/net/token.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <sodium.h>

#include <array>
#include <initializer_list>

namespace lockstep::net {
namespace {

constexpr size_t kMinTokenBytes = 16;
constexpr size_t kMaxTokenFileBytes = 64 * 1024;

/// Safe to call from any thread, any number of times.
void start_sodium() {
  if (::sodium_init() < 0) throw Error::environment("this system has no source of random numbers (/dev/urandom).");
}

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

std::string random_bytes(size_t count) {
  start_sodium();
  std::string bytes(count, '\0');
  ::randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

std::string random_hex(size_t count) {
  const std::string bytes = random_bytes(count);
  std::string text(2 * count + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), bytes_of(bytes), bytes.size());
  text.pop_back();
  return text;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string keyed_hash(std::string_view key, std::string_view bytes) {
  start_sodium();
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, bytes_of(key), key.size());
  ::crypto_auth_hmacsha256_update(&state, bytes_of(bytes), bytes.size());
  std::string hash(kProofBytes, '\0');
  ::crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

Token Token::from_text(std::string_view text, std::string_view origin) {
  const std::string_view token = trimmed(text);
  if (token.size() < kMinTokenBytes) {
    throw Error::usage("{}: a token of {} bytes is too short to be secret; at least {} are needed. Make one with: "
                       "openssl rand -hex 32", origin, token.size(), kMinTokenBytes);
  }
  return Token(std::string(token));
}

Token Token::from_file(const std::filesystem::path& path) {
  std::error_code error;
  if (const auto size = std::filesystem::file_size(path, error); !error && size > kMaxTokenFileBytes) {
    throw Error::usage("token file {}: {} bytes are more than a token has (at most {}). Is it the right file?",
                       path.string(), size, kMaxTokenFileBytes);
  }
  std::string text = read_file(path, ErrorKind::Usage);
  Token token = from_text(text, fmt::format("token file {}", path.string()));
  ::sodium_memzero(text.data(), text.size());
  return token;
}

Token Token::make() { return Token(random_hex(32)); }

Token::~Token() { ::sodium_memzero(text_.data(), text_.size()); }

std::string Token::prove(std::string_view role, std::string_view nonce_a, std::string_view nonce_b,
                         std::string_view context) const {
  start_sodium();
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, bytes_of(text_), text_.size());
  for (const std::string_view part : {role, nonce_a, nonce_b, context}) {
    const uint64_t size = part.size();
    std::array<unsigned char, 8> length{};
    for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<unsigned char>(size >> (8 * i));
    ::crypto_auth_hmacsha256_update(&state, length.data(), length.size());
    ::crypto_auth_hmacsha256_update(&state, bytes_of(part), part.size());
  }
  std::string proof(kProofBytes, '\0');
  static_assert(kProofBytes == crypto_auth_hmacsha256_BYTES);
  ::crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  return proof;
}

bool readable_by_others(const std::filesystem::path& path) {
  using std::filesystem::perms;
  std::error_code error;
  const perms mode = std::filesystem::status(path, error).permissions();
  return !error && (mode & (perms::group_read | perms::others_read)) != perms::none;
}

}  // namespace lockstep::net
