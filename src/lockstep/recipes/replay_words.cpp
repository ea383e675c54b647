#include "lockstep/recipes/replay_words.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace lockstep::recipes {
namespace {

constexpr size_t kShownBlocks = 12;

std::string hash_table(const UpdateRecord& logged, const UpdateRecord& replayed, const UpdateDifference& difference,
                       std::string_view title) {
  const size_t num_blocks = logged.block_hashes.size();
  if (difference.num_blocks) {
    return fmt::format("\n  {} blocks were logged, the model has {}", num_blocks, replayed.block_hashes.size());
  }
  if (difference.blocks.empty()) return "\n  the hashes of all blocks are the logged ones";
  std::string text = fmt::format("\n  {:<12} {:<18} {}", "block", "logged", title);
  for (size_t i = 0; i < std::min(difference.blocks.size(), kShownBlocks); ++i) {
    const size_t block = difference.blocks[i];
    text += fmt::format("\n  {:<12} {:<18} {}", block_name(block, num_blocks), logged.block_hashes[block],
                        replayed.block_hashes[block]);
  }
  if (difference.blocks.size() > kShownBlocks) {
    text += fmt::format("\n  and {} more of {} blocks", difference.blocks.size() - kShownBlocks, num_blocks);
  }
  return text;
}

std::string number_line(std::string_view what, double logged, double replayed, bool differs) {
  if (!differs) return "";
  return fmt::format("\n  {:<12} {:<18} {}", what, logged, replayed);
}

bool is_first(const UpdateRecord& logged, const ReplayFacts& facts) { return logged.update == facts.start_update + 1; }

/// The earliest thing in an update that is not as it was.
std::string meaning(const UpdateRecord& logged, const UpdateDifference& difference, const ReplayFacts& facts) {
  if (difference.num_blocks) return "That is another model than the run had.";
  if (difference.learning_rate) {
    return "The learning rate is another one, so the run went on with other options here than those of its run.json.";
  }
  const std::string_view before = is_first(logged, facts) ? "the weights it began with" : "the weights before it, which had the logged bits";
  if (difference.skipped) {
    return fmt::format("{} the update as not finite, so loss or gradients came out otherwise from {}.",
                       logged.skipped ? "The run alone left out" : "The replay alone left out", before);
  }
  if (difference.loss) {
    return fmt::format("The loss is another one already: the forward pass came out otherwise from {}.", before);
  }
  if (difference.grad_norm) {
    return "The loss is the logged one, the gradients' norm is not: the backward pass or the sum over processes came out "
           "otherwise.";
  }
  return "Loss and gradients' norm are the logged ones: the optimizer's step came out otherwise, or its state was another.";
}

std::string again(const ReplayFacts& facts, int64_t update, const std::string& more) {
  return fmt::format("lockstep replay {} --update {}{}{}", facts.run, update, more.empty() ? "" : " ", more);
}

std::string suspects_before_the_update(const UpdateRecord& logged, const ReplayFacts& facts) {
  if (!is_first(logged, facts)) return "";
  if (facts.start.empty()) {
    return "";
  }
  return fmt::format("\n- Does {} hold a wrong optimizer state? Start before it, which compares all that it holds:\n    {}",
                     facts.start, again(facts, facts.start_update, ""));
}

std::string what_to_try(const UpdateRecord& logged, const ReplayFacts& facts) {
  std::string text = "\nWhat to try:";
  if (!facts.other_kernels.empty()) {
    text += fmt::format("\n- There are {}.\n  Replay on the run's type of processor, with its build, before anything else.",
                        other_kernels_text(facts));
  }
  text += suspects_before_the_update(logged, facts);
  text += fmt::format("\n- The same on every host that took part, and on another one, in another layout:\n    {}",
                      again(facts, logged.update, facts.num_processes == 1 && facts.num_threads == 1
                                                      ? "--nproc_per_node 2" : "--nproc_per_node 1 --threads_per_process 1"));
  text += "\n  Only one host computes what no other does: its processor or memory is at fault (or it is of another type, or has "
          "another\n  build of lockstep: bits hold for one). All agree with each other: the run itself was hit at this update. "
          "On one host\n  the layout decides: that is a bug of lockstep, please report it with this text.";
  if (!facts.exact) {
    text += "\n- The run used --reduction float32: its bits hold in its own layout alone, so replay it in that one.";
  }
  return text;
}

}  // namespace

std::string block_name(size_t block, size_t num_blocks) {
  if (block == 0) return "embedding";
  return block + 1 == num_blocks ? "head" : fmt::format("layer {}", block - 1);
}

std::string updates_text(int64_t first, int64_t last) {
  return first == last ? fmt::format("update {}", first) : fmt::format("updates {} to {}", first, last);
}

std::string from_where(const ReplayFacts& facts) {
  return fmt::format("from {}, {} process{} x {} thread{}", facts.start.empty() ? "the beginning of the run" : facts.start,
                     facts.num_processes, facts.num_processes == 1 ? "" : "es", facts.num_threads,
                     facts.num_threads == 1 ? "" : "s");
}

std::string other_kernels_text(const ReplayFacts& facts) {
  if (facts.other_kernels.empty()) return "";
  return fmt::format("other kernels than the run's: {} give{} other bits here, from the same numbers (another type of "
                     "processor, or another build of lockstep)", fmt::join(facts.other_kernels, ", "),
                     facts.other_kernels.size() == 1 ? "s" : "");
}

std::string other_weights_text(const ReplayFacts& facts, const std::vector<size_t>& blocks, size_t num_blocks) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(blocks.size(), kShownBlocks); ++i) names.push_back(block_name(blocks[i], num_blocks));
  if (blocks.size() > kShownBlocks) names.push_back(fmt::format("{} more", blocks.size() - kShownBlocks));
  const std::string text = fmt::format("the weights in the model's folder are not those that {} began with: {} of {} blocks "
                                       "differ ({})", facts.run, blocks.size(), num_blocks, fmt::join(names, ", "));
  if (!facts.start.empty()) return text + fmt::format("; the replay takes those of {}", facts.start);
  return text + ". Put the model's files back, or start from a checkpoint with --checkpoint DIR.";
}

std::string same_bits_text(int64_t first, int64_t last, int64_t without_hashes) {
  std::string text = first == last ? fmt::format("Update {} gives the logged bits", first)
                                   : fmt::format("Updates {} to {} give the logged bits", first, last);
  if (without_hashes > 0) text += fmt::format(" ({} of them could not be compared: no hashes were logged)", without_hashes);
  return text;
}

std::string other_bits_text(const UpdateRecord& logged, const UpdateRecord& replayed, const UpdateDifference& difference,
                            const ReplayFacts& facts) {
  std::string text = fmt::format("update {} gives other bits than {} logged (replayed {}).", logged.update, facts.run,
                                 from_where(facts));
  text += hash_table(logged, replayed, difference, "replayed");
  text += number_line("loss", logged.loss, replayed.loss, difference.loss);
  text += number_line("grad_norm", logged.grad_norm, replayed.grad_norm, difference.grad_norm);
  text += number_line("learning_rate", logged.learning_rate, replayed.learning_rate, difference.learning_rate);
  text += "\n" + meaning(logged, difference, facts);
  if (logged.update > facts.start_update + 1) {
    const std::string before = updates_text(facts.start_update + 1, logged.update - 1);
    text += fmt::format(" Before it, {} had the logged bits.", before);
  }
  return text + what_to_try(logged, facts);
}

std::string other_start_text(const UpdateRecord& logged, const UpdateRecord& found, const UpdateDifference& difference,
                             const ReplayFacts& facts) {
  std::string text = fmt::format("{} does not hold the weights that {} logged for update {}, though its files are as they were "
                                 "written.", facts.start, facts.run, logged.update);
  text += hash_table(logged, found, difference, "in the checkpoint");
  text += fmt::format("\nThey changed between the update and the file, in memory or by a later hand; do not go on from this "
                      "checkpoint.\nWhat to try: compute it again from before it, which tells what is right:\n    {}",
                      again(facts, logged.update, ""));
  return text;
}

std::string other_checkpoint_text(int64_t update, const std::string& checkpoint,
                                  const std::vector<StateDifference>& differences, const ReplayFacts& facts) {
  std::string text = fmt::format("the weights after update {} have the logged bits, but {} holds other values (replayed {}).",
                                 update, checkpoint, from_where(facts));
  for (size_t i = 0; i < std::min(differences.size(), kShownBlocks); ++i) {
    const StateDifference& one = differences[i];
    text += fmt::format("\n  {:<12} {} of {}: {} of {} elements", one.block, one.state, one.param, one.num_different, one.numel);
  }
  if (differences.size() > kShownBlocks) text += fmt::format("\n  and {} more", differences.size() - kShownBlocks);
  return text + "\nEither it was damaged, or the run's own state was when it was taken: do not go on from it, but from an earlier one.";
}

}  // namespace lockstep::recipes
