// lockstep_logits MODEL_FOLDER: reads a JSON list of token id lists from standard input and writes the model's logits
// in float32 to standard output: raw, one row of the vocabulary's size per token. For scripts/peer-check.
#include "lockstep/base/error.h"
#include "model/model_rig.h"

#include <ATen/ops/arange.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <exception>
#include <iostream>

namespace lockstep::testing {
namespace {

void write_logits(const std::filesystem::path& folder, const std::vector<std::vector<int32_t>>& sequences) {
  ModelRig rig(model::read_decoder_config(folder), at::kFloat);
  rig.load(folder);
  for (const std::vector<int32_t>& tokens : sequences) {
    const model::GrainInput grain = pack({document_with_all_targets(tokens)});
    const at::Tensor logits_TV =
        loss::lm_head_logits(rig.store(), rig.head(), rig.forward(grain), at::arange(grain.num_tokens(), at::kLong))
            .contiguous();
    if (std::fwrite(logits_TV.const_data_ptr(), 1, logits_TV.nbytes(), stdout) != logits_TV.nbytes())
      throw Error::environment("standard output cannot be written to");
  }
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: lockstep_logits MODEL_FOLDER < ids.json > logits.f32\n", stderr);
    return 2;
  }
  try {
    lockstep::testing::write_logits(argv[1], nlohmann::json::parse(std::cin));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep_logits: %s\n", error.what());
    return 3;
  }
  return 0;
}
