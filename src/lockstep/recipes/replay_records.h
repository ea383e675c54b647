#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// What a run logged of its updates, and how that is compared with a replay. Torch-free.
namespace lockstep::recipes {

/// One update: as metrics.jsonl has it, or as it was computed again.
struct UpdateRecord {
  int64_t update = 0;
  double loss = 0, grad_norm = 0;            ///< NaN where not finite
  double learning_rate = 0;
  bool skipped = false;                      ///< left out by --non_finite skip
  std::vector<std::string> block_hashes;     ///< of the masters afterwards, to_hex(); empty: none were logged
};

using UpdateRecords = std::map<int64_t, UpdateRecord>;

/// The updates of a metrics.jsonl. Lines of evaluations are passed over, and so is a last line without its end, which is
/// being written. Of two lines for one update the later one holds. Throws Error{Data} that names `where` and the line.
UpdateRecords read_update_records(const std::string& text, const std::string& where);

/// The last update to replay: `wish`, or the last one with hashes. Throws Error{Usage} for an update that has none, naming
/// what there is, and Error{Data} when nothing has.
int64_t update_to_replay(const UpdateRecords& records, std::optional<int64_t> wish, const std::string& where);

/// What of an update is not as it was logged, bit for bit.
struct UpdateDifference {
  bool learning_rate = false, skipped = false, loss = false, grad_norm = false;
  bool num_blocks = false;                   ///< not even as many of them; `blocks` is empty then
  std::vector<size_t> blocks;                ///< whose hashes differ, ascending
  bool any() const { return learning_rate || skipped || loss || grad_norm || num_blocks || !blocks.empty(); }
};
/// Without logged hashes nothing is compared.
UpdateDifference compare_update(const UpdateRecord& logged, const UpdateRecord& replayed);

/// Checkpoints that training can go on from, ascending by update.
struct ReplayStart {
  int64_t update = 0;
  std::string folder;
};
/// The newest before `update`; nothing: the run's beginning.
std::optional<ReplayStart> choose_start(const std::vector<ReplayStart>& checkpoints, int64_t update);

}  // namespace lockstep::recipes
