#include <gtest/gtest.h>

#include "lockstep/base/files.h"
#include "lockstep/recipes/sft_cli.h"

namespace lockstep::recipes {
namespace {

TEST(SftOptions, ParseWithoutLibtorchInTheProcess) {
  const std::vector<std::string> args = {"--model_name_or_path", "M", "--dataset_name", "D"};
  EXPECT_EQ(parse_sft(args, {}).options.data.dataset_name, "D");
  const std::string libraries = read_file("/proc/self/maps");
  EXPECT_NE(libraries.find("libc.so"), std::string::npos);
  EXPECT_EQ(libraries.find("libtorch"), std::string::npos);
  EXPECT_EQ(libraries.find("libc10"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::recipes
