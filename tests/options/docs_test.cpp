#include <gtest/gtest.h>

#include "lockstep/base/files.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/recipes/generate_cli.h"
#include "lockstep/recipes/sft_cli.h"

namespace lockstep::recipes {
namespace {

TEST(OptionsPage, IsUpToDate) {
  const fs::path page = fs::path(LOCKSTEP_TEST_DATA) / "../../docs/options.md";
  EXPECT_TRUE(read_file(page) == options_markdown() + classify_markdown() + generate_markdown())
      << "docs/options.md is stale. Write it anew: build/bin/lockstep options --markdown > docs/options.md";
}

TEST(OptionsPage, HasARowForEveryOption) {
  SftOptions sft;
  const std::string page = options_markdown();
  for (const options::Field& field : options::collect(sft)) {
    EXPECT_NE(page.find("| `--" + field.spec.key + "` |"), std::string::npos) << field.spec.key;
  }
}

TEST(OptionsPage, HasARowForEveryOptionOfClassify) {
  ClassifyOptions classify;
  const std::string page = classify_markdown();
  for (const options::Field& field : options::collect(classify)) {
    EXPECT_NE(page.find("| `--" + field.spec.key + "` |"), std::string::npos) << field.spec.key;
  }
}

}  // namespace
}  // namespace lockstep::recipes
