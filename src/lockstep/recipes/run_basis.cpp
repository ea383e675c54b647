#include "lockstep/recipes/run_basis.h"

#include "lockstep/base/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace lockstep::recipes {
namespace {

using Kernel = std::pair<std::string, std::string>;

bool has_kernel(const RunBasis& basis, const Kernel& kernel) {
  return std::find(basis.kernels.begin(), basis.kernels.end(), kernel) != basis.kernels.end();
}

}  // namespace

RunBasis basis_of(const std::string& run_json, const std::string& where) {
  try {
    const auto json = nlohmann::ordered_json::parse(run_json);
    RunBasis basis;
    if (json.contains("weights")) json["weights"].get_to(basis.weights);
    if (json.contains("kernels")) {
      for (const auto& [name, hash] : json["kernels"].items()) basis.kernels.emplace_back(name, hash.get<std::string>());
    }
    return basis;
  } catch (const nlohmann::json::exception& problem) {
    throw Error::data("{}: the hashes of weights and kernels cannot be read ({}). Was the file edited?", where, problem.what());
  }
}

std::vector<std::string> other_kernels(const RunBasis& stored, const RunBasis& now) {
  std::vector<std::string> names;
  if (stored.kernels.empty()) return names;
  const auto add_missing = [&](const RunBasis& of, const RunBasis& in) {
    for (const Kernel& kernel : of.kernels) {
      const bool is_new = std::find(names.begin(), names.end(), kernel.first) == names.end();
      if (is_new && !has_kernel(in, kernel)) names.push_back(kernel.first);
    }
  };
  add_missing(stored, now);
  add_missing(now, stored);
  return names;
}

std::vector<size_t> other_weights(const RunBasis& stored, const RunBasis& now) {
  std::vector<size_t> blocks;
  if (stored.weights.empty()) return blocks;
  const bool same_count = stored.weights.size() == now.weights.size();
  for (size_t block = 0; block < now.weights.size(); ++block) {
    if (!same_count || stored.weights[block] != now.weights[block]) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace lockstep::recipes
