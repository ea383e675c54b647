#pragma once

#include "fuzz/mutator.h"
#include "fuzz/targets.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::fuzz {

inline constexpr size_t kLargestInput = 1 << 16;

/// What a searching process shows to the one that watches it, in memory that both see.
struct Progress {
  std::atomic<uint64_t> executions = 0;
  std::atomic<uint64_t> edges = 0;
  std::atomic<uint64_t> inputs = 0;  ///< in the corpus
  std::atomic<double> seconds = 0;   ///< of processor time
  std::atomic<size_t> size = 0;      ///< of the present input
  std::array<char, kLargestInput> input = {};
};

/// Runs a target on its corpus and on inputs made from it; an input that goes over new edges joins the corpus. Whatever
/// is found ends the process, and Progress then holds the input that did it.
class Search {
 public:
  Search(const Target& target, uint64_t seed, Progress& progress);

  /// At most kLargestInput bytes.
  void add(std::string input);
  /// For so many seconds of processor time: a paused process, or a busy machine, does not shorten the search.
  void run(double seconds);
  /// The shortest inputs that together go over (nearly) all edges, at most `max_bytes` of them in all.
  std::vector<std::string> distilled(size_t max_bytes);

 private:
  /// Both: true when the input went where none had gone. The first counts as progress.
  bool try_out(const std::string& input);
  bool execute(const std::string& input);

  const Target& target_;
  Mutator mutator_;
  Progress& progress_;
  std::vector<std::string> corpus_;
};

}  // namespace lockstep::fuzz
