#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::net {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

/// `count` bytes that nobody can guess.
std::string random_bytes(size_t count);
/// `count` of them as hexadecimal digits, for names and for tokens that are passed on as text.
std::string random_hex(size_t count);

/// Compares in a time that depends on the sizes alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// HMAC-SHA-256 of `bytes`: kProofBytes.
std::string keyed_hash(std::string_view key, std::string_view bytes);

/// The secret that the processes of a job share. It is never sent: each side proves that it has it by an HMAC over what
/// both said in this conversation. Thread-safe; the bytes are wiped on destruction.
class Token {
 public:
  /// Throws Error{Usage} naming `origin` for fewer than 16 bytes. Spaces and line ends around it do not count.
  static Token from_text(std::string_view text, std::string_view origin);
  /// Throws Error{Usage} with the path when the file cannot be read, is a folder, or holds fewer than 16 bytes.
  static Token from_file(const std::filesystem::path& path);
  /// 32 random bytes, as hexadecimal text.
  static Token make();

  Token(const Token&) = default;
  Token& operator=(const Token&) = default;
  Token(Token&&) = default;
  Token& operator=(Token&&) = default;
  ~Token();

  /// To be handed to processes of one's own, through the environment or a file of mode 0600.
  const std::string& text() const { return text_; }

  /// HMAC-SHA-256 over the parts. Each part is preceded by its length, so that no two lists of parts look alike.
  /// `role` tells the two sides' proofs apart.
  std::string prove(std::string_view role, std::string_view nonce_a, std::string_view nonce_b,
                    std::string_view context) const;

 private:
  explicit Token(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

/// True when others than the owner may read `path`: worth a warning.
bool readable_by_others(const std::filesystem::path& path);

}  // namespace lockstep::net
