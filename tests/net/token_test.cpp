#include "lockstep/net/token.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::net {
namespace {

template <class F>
std::string usage_error(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Token, ProvesWithHmacSha256) {
  // The same made with Python: hmac.new(b"secret-token-of-a-job", parts, "sha256") over "agent", "AAAA", "BB", "job" with their
  // lengths as 8 bytes, little-endian.
  const std::string proof = Token::from_text("secret-token-of-a-job", "test").prove("agent", "AAAA", "BB", "job");
  std::string hex;
  for (const char c : proof) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  EXPECT_EQ(hex, "a6ba056a431f07b6e1b396ccf828636d04ee4b54d8937d2f2344182f583e2e49");
}

TEST(Token, AProofDependsOnEveryPartAndOnTheToken) {
  const Token token = Token::from_text("secret-token-of-a-job", "test");
  const std::set<std::string> proofs = {
      token.prove("agent", "AAAA", "BB", "job"),    token.prove("coordinator", "AAAA", "BB", "job"),
      token.prove("agent", "AAA", "ABB", "job"),    token.prove("agent", "AAAA", "BBj", "ob"),
      token.prove("agent", "AAAA", "BC", "job"),    token.prove("agent", "AAAA", "BB", "jobs"),
      Token::from_text("secret-token-of-a-joB", "test").prove("agent", "AAAA", "BB", "job")};
  EXPECT_EQ(proofs.size(), 7U);
}

TEST(Token, ComesFromAFileWithoutItsLineEnd) {
  const TempFolder folder("token_test");
  write_file_atomically(folder.path() / "t", "0123456789abcdef\r\n");
  EXPECT_EQ(Token::from_file(folder.path() / "t").text(), "0123456789abcdef");
  fs::permissions(folder.path() / "t", fs::perms::owner_read);
  EXPECT_FALSE(readable_by_others(folder.path() / "t"));
  fs::permissions(folder.path() / "t", fs::perms::owner_read | fs::perms::others_read);
  EXPECT_TRUE(readable_by_others(folder.path() / "t"));
}

TEST(Token, RefusesWhatIsNoSecret) {
  const TempFolder folder("token_test");
  EXPECT_NE(usage_error([] { Token::from_text(" short \n", "LOCKSTEP_TOKEN"); }).find("LOCKSTEP_TOKEN: a token of 5 bytes"),
            std::string::npos);
  EXPECT_NE(usage_error([&] { Token::from_file(folder.path() / "none"); }).find("none"), std::string::npos);
  EXPECT_NE(usage_error([&] { Token::from_file(folder.path()); }).find(folder.path().string()), std::string::npos);
  write_file_atomically(folder.path() / "large", std::string(100'000, 'x'));
  EXPECT_NE(usage_error([&] { Token::from_file(folder.path() / "large"); }).find("100000 bytes"), std::string::npos);
}

TEST(Token, RandomBytesDoNotRepeat) {
  EXPECT_EQ(random_bytes(32).size(), 32U);
  EXPECT_NE(random_bytes(32), random_bytes(32));
  EXPECT_EQ(random_hex(4).size(), 8U);
  EXPECT_EQ(random_hex(4).find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(Token::make().text(), Token::make().text());
}

TEST(Token, ComparesSizesAndBytes) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

}  // namespace
}  // namespace lockstep::net
