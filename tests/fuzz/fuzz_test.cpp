// Briefly and repeatably, what scripts/fuzz does for longer: every target on its corpus and on inputs made from it.
#include "fuzz/corpus.h"
#include "fuzz/mutator.h"
#include "fuzz/targets.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::fuzz {
namespace {

class FuzzTarget : public testing::TestWithParam<std::string_view> {
 protected:
  const Target& target_ = target(GetParam());
  std::vector<std::string> files_ = read_corpus(fs::path(LOCKSTEP_FUZZ_CORPUS) / GetParam());

  std::vector<std::string> corpus() const {
    std::vector<std::string> all = target_.seeds();
    all.insert(all.end(), files_.begin(), files_.end());
    return all;
  }
  void run(const std::string& input) const {
    const std::vector<uint8_t> bytes(input.begin(), input.end());
    ASSERT_NO_THROW(target_.run(bytes.data(), bytes.size())) << testing::PrintToString(input);
  }
};

TEST_P(FuzzTarget, HoldsOnItsCorpus) {
  EXPECT_GE(files_.size(), 3U);
  run("");
  for (const std::string& input : corpus()) run(input);
}

TEST_P(FuzzTarget, HoldsOnChangedAndOnRandomInputs) {
  const std::vector<std::string> seeds = corpus();
  Mutator mutator(7, target_.words, target_.max_bytes);
  for (int i = 0; i < 10'000 && !HasFatalFailure(); ++i) {
    run(i % 20 == 0 ? mutator.random_bytes(80)
                    : mutator.change(seeds[mutator.below(seeds.size())], seeds[mutator.below(seeds.size())]));
  }
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const Target& target : targets()) all.push_back(target.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Every, FuzzTarget, testing::ValuesIn(names()),
                         [](const auto& target) { return std::string(target.param); });

TEST(FuzzTargets, TheCommittedCorpusIsSmallAndHasNoFolderWithoutATarget) {
  std::set<std::string> folders;
  uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(LOCKSTEP_FUZZ_CORPUS)) {
    if (entry.is_directory()) folders.insert(entry.path().filename());
    else bytes += entry.file_size();
  }
  const auto all = names();
  EXPECT_EQ(folders, std::set<std::string>(all.begin(), all.end()));
  EXPECT_LE(bytes, 40'000U);
}

TEST(FuzzTargets, AnUnknownNameIsRefusedWithThoseThereAre) {
  try {
    target("hostlist");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(error.what()).find("host_list"), std::string::npos);
  }
}

TEST(Mutator, MakesManyInputsWithinTheLimitAndAlwaysTheSame) {
  Mutator one(3, {"word"}, 40);
  Mutator other(3, {"word"}, 40);
  std::set<std::string> made;
  size_t with_word = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string input = one.change("n[0-12],m", "abcdefghijklmnopqrstuvwxyz");
    ASSERT_EQ(other.change("n[0-12],m", "abcdefghijklmnopqrstuvwxyz"), input);
    ASSERT_LE(input.size(), 40U);
    with_word += input.find("word") != std::string::npos ? 1 : 0;
    made.insert(input);
  }
  EXPECT_GT(made.size(), 900U);
  EXPECT_GT(with_word, 50U);
}

}  // namespace
}  // namespace lockstep::fuzz
