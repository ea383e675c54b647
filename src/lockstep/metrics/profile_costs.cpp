#include "lockstep/metrics/profile_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::metrics {
namespace {

using profile::Kind;
using profile::kNumKinds;
using profile::Span;

struct RowFacts {
  std::string_view name;
  WorkUnit unit = WorkUnit::None;
  std::string_view category = "compute";
};
enum Row : uint8_t {
  kEmbedding,
  kAttentionForward,
  kAttentionBackward,
  kProductForward,
  kInputGradient,
  kWeightGradient,
  kGradientAdd,
  kNorm,
  kActivation,
  kDropout,
  kElementwise,
  kHead,
  kRestOfGrains,
  kNormPass,
  kStepPass,
  kPlan,
  kReduceScatter,
  kAllGather,
  kPeers,
  kThreads,
  kReaders,
  kRestOfUpdate,
  kNumRows
};
static_assert(kNumRows <= ProfileCosts::kMaxRows);
constexpr std::array<RowFacts, kNumRows> kRows = {{
    {"embedding"},
    {"attention, forward", WorkUnit::Flops},
    {"attention, backward", WorkUnit::Flops},
    {"products, forward", WorkUnit::Flops},
    {"products, input gradients", WorkUnit::Flops},
    {"products, weight gradients + exact add", WorkUnit::Flops},
    {"exact add of other gradients", WorkUnit::Bytes},
    {"norms", WorkUnit::Bytes},
    {"activations", WorkUnit::Bytes},
    {"dropout", WorkUnit::Bytes},
    {"rotations, additions, conversions", WorkUnit::Bytes},
    {"head and loss", WorkUnit::Flops},
    {"rest of the grains"},
    {"optimizer: norm pass"},
    {"optimizer: step pass", WorkUnit::Bytes},
    {"plan of the update"},
    {"reduce-scatter of gradients", WorkUnit::Bytes, "communicate"},
    {"all-gather of weights", WorkUnit::Bytes, "communicate"},
    {"waiting for other ranks", WorkUnit::None, "wait"},
    {"waiting for other threads", WorkUnit::None, "wait"},
    {"waiting for a checkpoint's readers", WorkUnit::None, "wait"},
    {"rest of the update"},
}};

struct KindRow {
  KindFacts facts;
  Row row;
  bool takes_all = false;               ///< what lies inside counts as this
};

constexpr std::array<KindRow, kNumKinds> kKinds = {{
    {{"update", "frame"}, kRestOfUpdate},
    {{"grain", "frame"}, kRestOfGrains},
    {{"layer, forward", "frame"}, kRestOfGrains},
    {{"layer, backward", "frame"}, kRestOfGrains},
    {{"embedding, forward", "compute"}, kEmbedding, true},
    {{"embedding, backward", "compute"}, kEmbedding, true},
    {{"head and loss", "compute"}, kHead, true},
    {{"attention, forward", "compute", WorkUnit::Flops}, kAttentionForward},
    {{"attention, backward", "compute", WorkUnit::Flops}, kAttentionBackward},
    {{"product, forward", "compute", WorkUnit::Flops}, kProductForward},
    {{"product, input gradient", "compute", WorkUnit::Flops}, kInputGradient},
    {{"product, weight gradient + exact add", "compute", WorkUnit::Flops}, kWeightGradient, true},
    {{"exact add", "compute", WorkUnit::Bytes}, kGradientAdd},
    {{"norm", "compute", WorkUnit::Bytes}, kNorm},
    {{"activation", "compute", WorkUnit::Bytes}, kActivation},
    {{"dropout", "compute", WorkUnit::Bytes}, kDropout},
    {{"elementwise", "compute", WorkUnit::Bytes}, kElementwise},
    {{"plan", "compute"}, kPlan},
    {{"optimizer: norm pass", "compute"}, kNormPass},
    {{"optimizer: step pass", "compute", WorkUnit::Bytes}, kStepPass},
    {{"reduce-scatter", "communicate", WorkUnit::Bytes}, kReduceScatter},
    {{"all-gather", "communicate", WorkUnit::Bytes}, kAllGather},
    {{"waiting for other ranks", "wait"}, kPeers},
    {{"waiting for other threads", "wait"}, kThreads},
    {{"evaluation", "between"}, kRestOfUpdate},
    {{"checkpoint", "between"}, kReaders},
}};
const KindRow& row_of(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

/// Outer spans before those that lie in them.
std::vector<Span> outer_first(const std::vector<Span>& by_end) {
  std::vector<size_t> order(by_end.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Span &x = by_end[a], &y = by_end[b];
    if (x.begin_ns != y.begin_ns) return x.begin_ns < y.begin_ns;
    return x.end_ns != y.end_ns ? x.end_ns > y.end_ns : a > b;
  });
  std::vector<Span> spans;
  spans.reserve(by_end.size());
  for (const size_t i : order) spans.push_back(by_end[i]);
  return spans;
}

std::string rate_text(double rate, WorkUnit unit) {
  if (rate == 0) return "-";
  return unit == WorkUnit::Flops ? fmt::format("{:.1f} GFLOP/s", rate / 1e9) : fmt::format("{:.2f} GB/s", rate / 1e9);
}

std::string limit_text(double of_limit) { return of_limit == 0 ? "-" : fmt::format("{:.0f}%", 100 * of_limit); }

std::string_view limit_name(WorkUnit unit) { return unit == WorkUnit::Flops ? "the matrix rate" : "the streaming rate"; }

}  // namespace

const KindFacts& facts_of(Kind kind) { return row_of(kind).facts; }

std::string name_of(const Span& span) {
  const std::string_view name = facts_of(span.kind).name;
  if (span.index < 0) return std::string(name);
  const size_t word = std::min(name.find(','), name.size());
  return fmt::format("{} {}{}", name.substr(0, word), span.index, name.substr(word));
}

void ProfileCosts::add(const RankProfile& rank) {
  ++num_ranks_;
  num_lost_ += rank.num_lost;
  limits_sum_.flops_per_s += rank.limits.flops_per_s;
  limits_sum_.bytes_per_s += rank.limits.bytes_per_s;
  for (size_t thread = 0; thread < rank.threads.size(); ++thread) {
    add_thread(rank.rank, static_cast<int>(thread), rank.threads[thread]);
  }
}

void ProfileCosts::add_outside(const Span& span) {
  if (span.kind == Kind::Evaluation) evaluation_ns_ += span.end_ns - span.begin_ns;
  if (span.kind == Kind::Checkpoint) checkpoint_ns_ += span.end_ns - span.begin_ns;
}

void ProfileCosts::add_thread(int rank, int thread, const std::vector<Span>& by_end) {
  struct Open {
    int64_t end_ns;
    Row row;
    bool takes_all;
  };
  std::vector<Open> open;
  int64_t all_ns = 0, waited_ns = 0;
  const auto count = [&](Row row, int64_t ns) {
    sums_[row].ns += ns;
    if (kRows[row].category == "wait") waited_ns += ns;
  };
  for (const Span& span : outer_first(by_end)) {
    while (!open.empty() && open.back().end_ns <= span.begin_ns) open.pop_back();
    const int64_t ns = span.end_ns - span.begin_ns;
    if (open.empty() && (span.kind == Kind::Evaluation || span.kind == Kind::Checkpoint)) {
      if (rank == 0) add_outside(span);
      continue;
    }
    if (span.kind == Kind::Update) {
      updates_ns_ += ns;
      ++num_update_spans_;
      if (rank == 0) {
        first_update_ = num_updates_++ == 0 ? span.index : std::min<int64_t>(first_update_, span.index);
      }
    }
    const bool taken = !open.empty() && open.back().takes_all;
    const KindRow& own = row_of(span.kind);
    const Row row = taken ? open.back().row : own.row;
    if (open.empty()) {
      all_ns += ns;
    } else {
      count(open.back().row, -ns);
    }
    count(row, ns);
    if (own.facts.unit == kRows[row].unit) sums_[row].work += span.work;
    open.push_back({span.end_ns, row, taken || own.takes_all});
  }
  total_ns_ += all_ns;
  if (all_ns == 0) return;
  names_.push_back(fmt::format("rank {} thread {}", rank, thread));
  busy_.push_back(1 - static_cast<double>(waited_ns) / static_cast<double>(all_ns));
}

MachineLimits ProfileCosts::limits() const {
  const double ranks = std::max(1, num_ranks_);
  return {limits_sum_.flops_per_s / ranks, limits_sum_.bytes_per_s / ranks};
}

double ProfileCosts::update_ms() const {
  return 1e-6 * static_cast<double>(updates_ns_) / static_cast<double>(std::max<int64_t>(1, num_update_spans_));
}

std::vector<CostRow> ProfileCosts::rows() const {
  std::vector<CostRow> rows;
  const MachineLimits can = limits();
  for (size_t i = 0; i < kNumRows; ++i) {
    if (sums_[i].ns <= 0) continue;
    const auto ns = static_cast<double>(sums_[i].ns);
    CostRow row{.name = kRows[i].name, .unit = kRows[i].unit};
    row.share = ns / static_cast<double>(total_ns_);
    row.ms = row.share * update_ms();
    if (row.unit != WorkUnit::None) row.rate = 1e9 * static_cast<double>(sums_[i].work) / ns;
    const double limit = row.unit == WorkUnit::Flops ? can.flops_per_s : can.bytes_per_s;
    if (kRows[i].category == "compute" && row.rate > 0 && limit > 0) row.of_limit = row.rate / limit;
    rows.push_back(row);
  }
  return rows;
}

std::string ProfileCosts::balance_line() const {
  constexpr size_t kShown = 8;
  std::string text = "threads at work: ";
  if (busy_.size() <= kShown) {
    for (size_t i = 0; i < busy_.size(); ++i) text += fmt::format("{}{} {:.0f}%", i == 0 ? "" : ", ", names_[i], 100 * busy_[i]);
    return text;
  }
  const auto least = std::min_element(busy_.begin(), busy_.end()), most = std::max_element(busy_.begin(), busy_.end());
  const double mean = std::accumulate(busy_.begin(), busy_.end(), 0.0) / static_cast<double>(busy_.size());
  return text + fmt::format("{:.0f}% in the mean; least {} {:.0f}%, most {} {:.0f}%", 100 * mean,
                            names_[static_cast<size_t>(least - busy_.begin())], 100 * *least,
                            names_[static_cast<size_t>(most - busy_.begin())], 100 * *most);
}

std::string ProfileCosts::limits_line() const {
  const MachineLimits can = limits();
  return fmt::format("limits of a thread, measured before the first of them with all threads at work: {}, {}",
                     rate_text(can.flops_per_s, WorkUnit::Flops), rate_text(can.bytes_per_s, WorkUnit::Bytes));
}

std::string ProfileCosts::largest_line(const std::vector<CostRow>& rows) const {
  std::vector<CostRow> sorted = rows;
  std::stable_sort(sorted.begin(), sorted.end(), [](const CostRow& a, const CostRow& b) { return a.ms > b.ms; });
  std::string text = "largest: ";
  for (size_t i = 0; i < std::min<size_t>(3, sorted.size()); ++i) {
    const CostRow& row = sorted[i];
    text += fmt::format("{}{} ({:.0f}%", i == 0 ? "" : "; ", row.name, 100 * row.share);
    if (row.of_limit > 0) text += fmt::format(", at {} of {}", limit_text(row.of_limit), limit_name(row.unit));
    text += ")";
  }
  return text;
}

std::vector<std::string> ProfileCosts::lines() const {
  LS_CHECK(total_ns_ > 0, "a profile without an update");
  const int64_t last = first_update_ + num_updates_ - 1;
  const std::string which = num_updates_ == 1 ? fmt::format("update {}", last) : fmt::format("updates {} to {}", first_update_, last);
  std::vector<std::string> lines = {fmt::format("profile of {}: {:.1f} ms per update, {} process{} x {} threads", which, update_ms(),
                                                num_ranks_, num_ranks_ == 1 ? "" : "es",
                                                busy_.size() / static_cast<size_t>(std::max(1, num_ranks_)))};
  lines.push_back(fmt::format("  {:<40}{:>10}{:>8}{:>18}{:>10}", "", "ms", "share", "rate of a thread", "of limit"));
  const std::vector<CostRow> rows = this->rows();
  double ms = 0, share = 0;
  for (const CostRow& row : rows) {
    lines.push_back(fmt::format("  {:<40}{:>10.2f}{:>7.1f}%{:>18}{:>10}", row.name, row.ms, 100 * row.share,
                                rate_text(row.rate, row.unit), limit_text(row.of_limit)));
    ms += row.ms;
    share += row.share;
  }
  lines.push_back(fmt::format("  {:<40}{:>10.2f}{:>7.1f}%", "all", ms, 100 * share));
  lines.push_back("  " + balance_line());
  lines.push_back("  " + limits_line());
  if (evaluation_ns_ + checkpoint_ns_ > 0) {
    lines.push_back(fmt::format("  between these updates: evaluations {:.1f} ms, checkpoints {:.1f} ms",
                                1e-6 * static_cast<double>(evaluation_ns_), 1e-6 * static_cast<double>(checkpoint_ns_)));
  }
  if (num_lost_ > 0) {
    lines.push_back(fmt::format("  {} spans found no room, so some rows are too small and others too large: profile fewer updates",
                                num_lost_));
  }
  lines.push_back("  " + largest_line(rows));
  return lines;
}

}  // namespace lockstep::metrics
