#pragma once

#include "lockstep/base/files.h"

#include <cstdint>
#include <string>
#include <vector>

/// The real program, `lockstep sft`, on the real model.
namespace lockstep::golden {

/// SmolLM2-135M-Instruct: where LOCKSTEP_SMOLLM2 says, or .models of the source tree. Throws Error{Environment} naming
/// the folder when it is not there.
fs::path smollm2();

/// The 1,319 rows of tests/data/gsm8k/test.jsonl as chats, [user: question, assistant: answer], one per line.
std::string gsm8k_chats();

/// A line of metrics.jsonl.
struct UpdateLine {
  double loss = 0, grad_norm = 0, learning_rate = 0, entropy = 0, mean_token_accuracy = 0, balance = 0;
  int64_t num_tokens = 0;
  std::vector<std::string> block_hashes;
};

/// Trains SmolLM2; the result lies in a temporary folder for as long as this lives.
class SftRun {
 public:
  /// `flags`: those beside model and output folder. Throws Error{Internal} with all the program said unless it exits
  /// with 0.
  explicit SftRun(std::vector<std::string> flags);

  const std::vector<UpdateLine>& updates() const { return updates_; }
  fs::path file(const std::string& name) const { return folder_.path() / "out" / name; }

 private:
  TempFolder folder_{"golden-sft"};
  std::vector<UpdateLine> updates_;
};

}  // namespace lockstep::golden
