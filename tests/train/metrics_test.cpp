#include "lockstep/train/metrics.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace lockstep::train {
namespace {

using nlohmann::json;

TEST(MetricsLine, KeepsEveryBitOfANumber) {
  UpdateMetrics metrics;
  metrics.loss = 0.1 + 0.2;
  metrics.grad_norm = std::numeric_limits<double>::denorm_min();
  metrics.learning_rate = 1.0 / 3;
  const json line = json::parse(to_json_line(metrics));
  EXPECT_EQ(line["loss"].get<double>(), metrics.loss);
  EXPECT_EQ(line["grad_norm"].get<double>(), metrics.grad_norm);
  EXPECT_EQ(line["learning_rate"].get<double>(), metrics.learning_rate);
}

TEST(MetricsLine, WritesNullForWhatIsNotFinite) {
  UpdateMetrics metrics;
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  const json line = json::parse(to_json_line(metrics));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["grad_norm"].is_null());
}

TEST(MetricsLine, LeavesOutWhatALossDoesNotHave) {
  UpdateMetrics metrics;
  EXPECT_TRUE(json::parse(to_json_line(metrics)).contains("entropy"));
  metrics.has_entropy = metrics.has_accuracy = false;
  const json line = json::parse(to_json_line(metrics));
  EXPECT_FALSE(line.contains("entropy"));
  EXPECT_FALSE(line.contains("mean_token_accuracy"));
}

TEST(MetricsLine, WritesHashesWithAllDigits) {
  UpdateMetrics metrics;
  metrics.block_hashes = {1, 0xfedcba9876543210};
  const json line = json::parse(to_json_line(metrics));
  EXPECT_EQ(line["block_hashes"], (json{"0000000000000001", "fedcba9876543210"}));
  EXPECT_EQ(to_json_line(metrics).find('\n'), std::string::npos);
}

TEST(MetricsFile, StartsAnewAndIsOnDiskAfterEachLine) {
  const TempFolder folder("metrics");
  const fs::path path = folder.path() / "below" / "metrics.jsonl";
  for (int run = 0; run < 2; ++run) {
    MetricsFile file(path);
    EXPECT_EQ(read_file(path), "");
    UpdateMetrics metrics;
    metrics.update = run + 1;
    file.append(metrics);
    EXPECT_EQ(read_file(path), to_json_line(metrics) + "\n");
  }
}

TEST(MetricsFile, AContinuedOneKeepsWhatIsNotWrittenAgain) {
  const TempFolder folder("metrics");
  const fs::path path = folder.path() / "metrics.jsonl";
  write_file_atomically(path, "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"eval_loss\":1}\n{\"step\":3}\n{\"ste");
  MetricsFile file(path, 2);
  file.append_line("{\"step\":3,\"again\":true}");
  EXPECT_EQ(read_file(path),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"eval_loss\":1}\n{\"step\":3,\"again\":true}\n");
}

TEST(MetricsFile, SaysWhereItCannotWrite) {
  const TempFolder folder("metrics");
  write_file_atomically(folder.path() / "file", "");
  try {
    MetricsFile file(folder.path() / "file" / "metrics.jsonl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_NE(std::string(error.what()).find("--output_dir"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::train
