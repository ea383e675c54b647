#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

/// What a run's bits come from beside its options and data, as run.json keeps it. Torch-free.
namespace lockstep::recipes {

struct RunBasis {
  std::vector<std::string> weights;  ///< a hash per block of the masters before the first update, as in metrics.jsonl
  std::vector<std::pair<std::string, std::string>> kernels;  ///< names and hashes of train::Fingerprint
};

/// Of a run.json; an older version's lacks parts. Throws Error{Data} naming `where` for a text that is no record.
RunBasis basis_of(const std::string& run_json, const std::string& where);

/// Names of the kernels that do not give the stored bits, or are on one side alone; none where nothing is stored.
std::vector<std::string> other_kernels(const RunBasis& stored, const RunBasis& now);

/// Of the blocks that the run did not begin with, ascending; all of them for another number of blocks, none where nothing is
/// stored.
std::vector<size_t> other_weights(const RunBasis& stored, const RunBasis& now);

}  // namespace lockstep::recipes
