#include "lockstep/recipes/replay_records.h"

#include "lockstep/base/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <string_view>

namespace lockstep::recipes {
namespace {

double number_or_nan(const nlohmann::json& line, const char* key) {
  const auto found = line.find(key);
  return found == line.end() || !found->is_number() ? std::numeric_limits<double>::quiet_NaN() : found->get<double>();
}

/// NaN is the same as NaN.
bool same_number(double a, double b) { return a == b || (a != a && b != b); }

/// Nothing for a line that is of no update, such as an evaluation's.
/// `fail`: throws what it is told.
template <class Fail>
std::optional<UpdateRecord> record_of_line(std::string_view text, Fail fail) {
  const auto line = nlohmann::json::parse(text, nullptr, false);
  if (!line.is_object()) fail("it is no JSON object");
  UpdateRecord record;
  if (!line.contains("step") || !line["step"].is_number_integer()) fail("'step' is no whole number");
  record.update = line["step"].get<int64_t>();
  if (!line.contains("loss")) return std::nullopt;
  record.loss = number_or_nan(line, "loss");
  record.grad_norm = number_or_nan(line, "grad_norm");
  record.learning_rate = number_or_nan(line, "learning_rate");
  try {
    record.skipped = line.value("skipped", false);
    record.block_hashes = line.value("block_hashes", std::vector<std::string>());
  } catch (const nlohmann::json::exception&) {
    fail("'skipped' is not true or false, or 'block_hashes' is no list of texts");
  }
  return record;
}

}  // namespace

UpdateRecords read_update_records(const std::string& text, const std::string& where) {
  UpdateRecords records;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    ++number;
    const auto record = record_of_line(std::string_view(text).substr(begin, end - begin), [&](std::string_view what) {
      throw Error::data("{}:{}: is not a line that lockstep wrote ({}). Was the file edited? Without what the run logged "
                        "there is nothing to compare a replay with.",
                        where, number, what);
    });
    if (record) records[record->update] = *record;
    begin = end + 1;
  }
  return records;
}

int64_t update_to_replay(const UpdateRecords& records, std::optional<int64_t> wish, const std::string& where) {
  std::optional<int64_t> first, last;
  for (const auto& [update, record] : records) {
    if (record.block_hashes.empty()) continue;
    if (!first) first = update;
    last = update;
  }
  if (!last) {
    throw Error::data("{}: {}, so there is nothing to compare a replay with.", where,
                      records.empty() ? "has no update" : "none of its updates has hashes of the blocks");
  }
  if (!wish) return *last;
  const auto found = records.find(*wish);
  if (found != records.end() && !found->second.block_hashes.empty()) return *wish;
  throw Error::usage("--update = {}: {} {}. Updates with hashes of the blocks: {} to {}.", *wish, where,
                     found == records.end() ? "has no such update" : "has that update without hashes of the blocks", *first,
                     *last);
}

UpdateDifference compare_update(const UpdateRecord& logged, const UpdateRecord& replayed) {
  UpdateDifference difference;
  if (logged.block_hashes.empty()) return difference;
  difference.learning_rate = !same_number(logged.learning_rate, replayed.learning_rate);
  difference.skipped = logged.skipped != replayed.skipped;
  difference.loss = !same_number(logged.loss, replayed.loss);
  difference.grad_norm = !same_number(logged.grad_norm, replayed.grad_norm);
  difference.num_blocks = logged.block_hashes.size() != replayed.block_hashes.size();
  if (difference.num_blocks) return difference;
  for (size_t block = 0; block < logged.block_hashes.size(); ++block) {
    if (logged.block_hashes[block] != replayed.block_hashes[block]) difference.blocks.push_back(block);
  }
  return difference;
}

std::optional<ReplayStart> choose_start(const std::vector<ReplayStart>& checkpoints, int64_t update) {
  const auto after = std::find_if(checkpoints.begin(), checkpoints.end(),
                                  [&](const ReplayStart& one) { return one.update >= update; });
  return after == checkpoints.begin() ? std::nullopt : std::optional(*std::prev(after));
}

}  // namespace lockstep::recipes
