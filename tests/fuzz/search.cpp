#include "fuzz/search.h"

#include "fuzz/coverage.h"
#include "lockstep/base/error.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace lockstep::fuzz {
namespace {

double processor_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Search::Search(const Target& target, uint64_t seed, Progress& progress)
    : target_(target), mutator_(seed, target.words, target.max_bytes), progress_(progress) {
  LS_CHECK(target.max_bytes <= kLargestInput, "{} has inputs of {} bytes", target.name, target.max_bytes);
}

bool Search::try_out(const std::string& input) {
  const bool is_new = execute(input);
  ++progress_.executions;
  progress_.edges = coverage::num_edges();
  return is_new;
}

bool Search::execute(const std::string& input) {
  std::copy(input.begin(), input.end(), progress_.input.begin());
  progress_.size = input.size();
  const std::vector<uint8_t> exact(input.begin(), input.end());  // its end is watched by the address sanitizer
  coverage::begin();
  target_.run(exact.data(), exact.size());
  return coverage::add();
}

void Search::add(std::string input) {
  LS_CHECK(input.size() <= kLargestInput, "{} bytes", input.size());
  try_out(input);
  corpus_.push_back(std::move(input));
  progress_.inputs = corpus_.size();
}

void Search::run(double seconds) {
  if (corpus_.empty()) add("");
  const double end = processor_seconds() + seconds;
  const double begin = end - seconds;
  for (uint64_t turn = 0;; ++turn) {
    if (turn % 64 == 0) {
      const double now = processor_seconds();
      progress_.seconds = now - begin;
      if (now >= end) return;
    }
    // Every other time one of the newest: they lead furthest from what is known.
    const size_t newest = mutator_.below(2) == 0 ? std::min<size_t>(corpus_.size(), 32) : corpus_.size();
    const std::string& from = corpus_[corpus_.size() - 1 - mutator_.below(newest)];
    const std::string& other = corpus_[mutator_.below(corpus_.size())];
    std::string input = mutator_.below(200) == 0 ? mutator_.random_bytes(target_.max_bytes / 4) : mutator_.change(from, other);
    if (!try_out(input)) continue;
    corpus_.push_back(std::move(input));
    progress_.inputs = corpus_.size();
  }
}

std::vector<std::string> Search::distilled(size_t max_bytes) {
  std::vector<std::string> by_size = corpus_;
  std::stable_sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  coverage::clear();
  std::vector<std::string> kept;
  size_t bytes = 0;
  size_t edges = 0;
  for (std::string& input : by_size) {
    if (bytes + input.size() > max_bytes) break;
    execute(input);
    if (coverage::num_edges() == edges) continue;
    edges = coverage::num_edges();
    bytes += input.size();
    kept.push_back(std::move(input));
  }
  return kept;
}

}  // namespace lockstep::fuzz
