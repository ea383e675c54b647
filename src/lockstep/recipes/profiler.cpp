#include "lockstep/recipes/profiler.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/host_name.h"
#include "lockstep/metrics/profile_trace.h"
#include "lockstep/train/machine_limits.h"

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace lockstep::recipes {
namespace {

/// The first updates make kernels and take memory that later ones find.
constexpr int64_t kWarmUpUpdates = 2;
constexpr size_t kSpansPerThread = size_t{1} << 18;  // 8 MiB

/// The same for two processes exactly if they share a steady clock.
std::string clock_id() {
  std::string id = read_file("/proc/sys/kernel/random/boot_id");
  std::error_code problem;
  return id + std::filesystem::read_symlink("/proc/self/ns/time", problem).string();
}

/// A rank's profile without its spans.
struct Header {
  metrics::RankProfile rank;
  std::string clock;
  std::vector<int64_t> counts;              ///< of spans per thread
};

Header parse_header(const std::string& text, int rank) {
  const auto json = nlohmann::json::parse(text);
  Header header;
  header.rank.rank = rank;
  header.rank.host = json.at("host").get<std::string>();
  header.rank.origin_ns = json.at("started_ns").get<int64_t>();
  header.rank.limits = {json.at("flops_per_s").get<double>(), json.at("bytes_per_s").get<double>()};
  header.rank.num_lost = json.at("lost").get<int64_t>();
  header.clock = json.at("clock").get<std::string>();
  header.counts = json.at("counts").get<std::vector<int64_t>>();
  return header;
}

/// Ranks with rank 0's clock get one zero, the others their own. Returns how well that fits.
std::string align(std::vector<Header>& headers) {
  std::string clock;
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  bool one_clock = true;
  for (const Header& header : headers) {
    if (header.rank.rank == 0) clock = header.clock;
    if (header.clock == clock) first_ns = std::min(first_ns, header.rank.origin_ns);
    one_clock &= header.clock == clock;
  }
  for (Header& header : headers) {
    if (header.clock == clock) header.rank.origin_ns = first_ns;
  }
  if (one_clock) return "all ranks read one clock";
  return "machines have clocks of their own, set to zero by one barrier: between machines times agree to about its latency";
}

/// The files of a profile. A disk that is full ends the writing with a warning, not the run.
class ProfileFiles {
 public:
  explicit ProfileFiles(const std::filesystem::path& folder) : folder_(folder) {
    attempt([&] {
      require_writable_folder(folder_);
      file_.emplace(folder_ / "trace.json");
      trace_.emplace([this](std::string_view text) { file_->write(text); });
    });
  }
  void add(const metrics::RankProfile& rank) {
    attempt([&] { trace_->add(rank); });
  }
  /// True when both files are there.
  bool finish(const std::string& clock, const std::vector<std::string>& table, int64_t num_lost) {
    attempt([&] {
      trace_->finish(clock, table, num_lost);
      file_->commit();
      write_file_atomically(folder_ / "table.txt", fmt::format("{}\n", fmt::join(table, "\n")));
    });
    return is_well_;
  }

 private:
  template <class Work>
  void attempt(const Work& work) {
    if (!is_well_) return;
    try {
      work();
    } catch (const Error& error) {
      is_well_ = false;
      log::warn("profile", "the profile is not written, training goes on: {}", error.what());
    }
  }

  std::filesystem::path folder_;
  std::optional<AtomicFile> file_;
  std::optional<metrics::TraceWriter> trace_;
  bool is_well_ = true;
};

}  // namespace

std::filesystem::path profile_folder(const std::filesystem::path& output) { return output / "profile"; }

Profiler::Profiler(int64_t num_updates, std::filesystem::path folder, train::Trainer& trainer, comm::Communicator& comm,
                   std::function<void(const std::string&)> say)
    : num_updates_(num_updates), folder_(std::move(folder)), trainer_(trainer), comm_(comm), say_(std::move(say)) {}

void Profiler::on_step_begin(const train::LoopState& state, train::LoopControl& /*control*/) {
  if (is_finished_) return;
  if (!first_) first_ = state.update + 1 + std::min(kWarmUpUpdates, state.total_updates - state.update - 1);
  if (state.update + 1 < *first_) return;
  if (!recorder_) begin();
  recorder_->start();
}

void Profiler::on_step_end(const train::LoopState& state, train::LoopControl& /*control*/) {
  if (is_finished_ || !recorder_) return;
  recorder_->stop();
  if (++num_recorded_ == num_updates_ || state.update == state.total_updates) finish();
}

void Profiler::on_train_end(const train::LoopState& /*state*/, train::LoopControl& /*control*/) {
  if (is_finished_) return;
  if (num_recorded_ > 0) return finish();
  is_finished_ = true;
  say_(first_ ? fmt::format("--profile: the run ended before update {}, the first that would have been recorded", *first_)
              : "--profile: there was no update to record");
}

void Profiler::between(profile::Kind kind, const std::function<void()>& work) {
  if (is_finished_ || !recorder_) return work();
  const profile::Recording recording(recorder_->thread(0));
  const profile::Scope span(kind);
  const profile::Recording nothing(nullptr);  // what an evaluation does is no update's
  work();
}

// Memory, limits and the common zero: before the first update that is recorded.
void Profiler::begin() {
  comm_.barrier("the machine's limits for a profile");
  limits_ = train::measure_limits(trainer_.team(), trainer_.task().compute_dtype());
  recorder_ = std::make_unique<profile::Recorder>(trainer_.team().size(), kSpansPerThread);
  comm_.barrier("the start of a profile");
  started_ns_ = profile::now_ns();
}

std::string Profiler::own_header() const {
  std::vector<size_t> counts;
  int64_t num_lost = 0;
  for (int thread = 0; thread < recorder_->num_threads(); ++thread) {
    counts.push_back(recorder_->spans(thread).spans.size());
    num_lost += recorder_->spans(thread).num_lost;
  }
  return nlohmann::json{{"host", launch::own_host_name()}, {"clock", clock_id()}, {"started_ns", started_ns_},
                        {"flops_per_s", limits_.flops_per_s}, {"bytes_per_s", limits_.bytes_per_s},
                        {"lost", num_lost}, {"counts", counts}}
      .dump();
}

void Profiler::fetch_spans(metrics::RankProfile& rank, const std::vector<int64_t>& counts) const {
  constexpr auto kWords = static_cast<int64_t>(sizeof(profile::Span) / sizeof(int64_t));
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  at::Tensor words = at::empty({all * kWords}, at::kLong);
  auto* const bytes = reinterpret_cast<char*>(words.data_ptr<int64_t>());
  size_t offset = 0;
  if (rank.rank == comm_.rank()) {
    for (int thread = 0; thread < recorder_->num_threads(); ++thread) {
      const std::vector<profile::Span>& spans = recorder_->spans(thread).spans;
      std::memcpy(bytes + offset, spans.data(), spans.size() * sizeof(profile::Span));
      offset += spans.size() * sizeof(profile::Span);
    }
  }
  comm_.broadcast(words, rank.rank, "spans of a profile");
  offset = 0;
  for (const int64_t count : counts) {
    std::vector<profile::Span>& spans = rank.threads.emplace_back(static_cast<size_t>(count));
    std::memcpy(spans.data(), bytes + offset, spans.size() * sizeof(profile::Span));
    offset += spans.size() * sizeof(profile::Span);
  }
}

void Profiler::finish() {
  is_finished_ = true;
  std::vector<Header> headers;
  for (const std::string& text : comm_.all_gather_text(own_header(), "headers of a profile")) {
    headers.push_back(parse_header(text, static_cast<int>(headers.size())));
  }
  const std::string clock = align(headers);
  std::optional<ProfileFiles> files;
  if (comm_.rank() == 0) files.emplace(folder_);
  metrics::ProfileCosts costs;
  for (Header& header : headers) {
    fetch_spans(header.rank, header.counts);
    if (files) files->add(header.rank);
    if (files) costs.add(header.rank);
    header.rank.threads.clear();
  }
  recorder_.reset();
  if (!files) return;
  const std::vector<std::string> table = costs.lines();
  for (const std::string& line : table) say_(line);
  if (files->finish(clock, table, costs.num_lost())) {
    say_(fmt::format("  the trace is {}: open it in https://ui.perfetto.dev", (folder_ / "trace.json").string()));
  }
}

}  // namespace lockstep::recipes
