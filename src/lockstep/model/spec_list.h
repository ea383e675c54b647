#pragma once

#include "lockstep/tensor/param_layout.h"

#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::model::detail {

/// Collects parameters in the order of the checkpoint's module tree. Inside model/ only.
struct SpecList {
  std::vector<tensor::ParamSpec> specs;

  void add(std::string name, std::vector<int64_t> shape, int block) {
    const bool decay = decays(name);
    specs.push_back({.name = std::move(name), .shape = std::move(shape), .block = block, .decay = decay});
  }
  /// Token or position embeddings that no product reads.
  void add_table(std::string name, int64_t rows, int64_t width, int block) {
    add(std::move(name), {rows, width}, block);
    specs.back().by_rows = true;
  }
  void add_linear(const std::string& name, int64_t outputs, int64_t inputs, bool bias, int block) {
    add(name + ".weight", {outputs, inputs}, block);
    if (bias) add(name + ".bias", {outputs}, block);
  }
  void add_layer_norm(const std::string& name, int64_t width, int block) {
    for (const char* part : {".weight", ".bias"}) {
      add(name + part, {width}, block);
      specs.back().decay = false;
    }
  }

 private:
  /// Hugging Face's second group (Trainer.get_decay_parameter_names): by the lower-cased full name, and every
  /// nn.LayerNorm.
  static bool decays(const std::string& name) {
    static const std::regex no_decay(R"(bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.))", std::regex::icase);
    return !std::regex_search(name, no_decay);
  }
};

}  // namespace lockstep::model::detail
