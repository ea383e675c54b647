#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

/// What each thread was doing and when: spans of steady-clock time, kept in memory that is taken before the first one.
/// A span begins and ends with a Scope. Off (no Recording on this thread), a Scope is one test of a thread's pointer.
namespace lockstep::profile {

enum class Kind : uint8_t {
  // Frames: what they hold is told apart by the kinds below, their own rest is "other".
  Update,
  Grain,                ///< index: of the grain in its update
  LayerForward,         ///< index: of the layer
  LayerBackward,
  // Frames that are told as one, whatever runs inside.
  EmbeddingForward,
  EmbeddingBackward,
  Head,
  // Work.
  AttentionForward,
  AttentionBackward,
  ProductForward,
  ProductInputGradient,
  ProductWeightGradient,  ///< with the adding into the exact sums
  GradientAdd,          ///< finished gradients (of vectors, mostly) into the exact sums
  Norm,
  Activation,
  Dropout,
  Elementwise,          ///< rotations of positions, additions, conversions
  Plan,
  NormPass,             ///< of the optimizer: reads the summed gradients
  StepPass,             ///< of the optimizer: changes the weights
  // Communication: bytes that this rank sends, at the least.
  ReduceScatter,
  AllGather,
  // Waiting.
  Peers,                ///< small messages: their time is that of the slowest rank
  Threads,              ///< a thread of the team without work
  // Between updates.
  Evaluation,
  Checkpoint,
};
constexpr size_t kNumKinds = static_cast<size_t>(Kind::Checkpoint) + 1;

struct Span {
  int64_t begin_ns = 0, end_ns = 0;     ///< steady clock
  int64_t work = 0;                     ///< floating-point operations or bytes, as the kind has it; 0: unknown
  int32_t index = -1;                   ///< see Kind
  Kind kind = Kind::Update;
};
static_assert(sizeof(Span) == 32 && std::is_trivially_copyable_v<Span>);

int64_t now_ns();

class Recorder;

/// Spans of one thread, in the order of their ends: one that lies in another comes before it. Written by that thread alone.
struct ThreadSpans {
  Recorder* recorder = nullptr;
  std::vector<Span> spans;              ///< never grows beyond what was reserved
  int64_t num_lost = 0;                 ///< that found no room
  int64_t idle_since_ns = 0;            ///< of a helper without work

  void add(const Span& span) {
    if (spans.size() < spans.capacity()) {
      spans.push_back(span);
    } else {
      ++num_lost;
    }
  }
};

/// Spans of a process. start() and stop() are called by the thread that runs the updates, while its team has no work.
class Recorder {
 public:
  /// Takes and touches memory for `spans_per_thread` spans of 32 bytes for each thread.
  Recorder(int num_threads, size_t spans_per_thread);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();

  /// The calling thread records as thread 0, and with it every ThreadTeam that it gives work to.
  void start();
  /// Adds what the helpers' waiting was by now.
  void stop();

  int num_threads() const { return static_cast<int>(threads_.size()); }
  /// nullptr for a thread that is not one of them.
  ThreadSpans* thread(int index);
  const ThreadSpans& spans(int index) const { return *threads_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::unique_ptr<ThreadSpans>> threads_;  ///< apart, so that no two threads write to one cache line
};

namespace detail {
/// Where this thread records; nullptr: nowhere.
inline constinit thread_local ThreadSpans* t_spans = nullptr;
}  // namespace detail

inline ThreadSpans* spans_of_this_thread() { return detail::t_spans; }

/// While it lives, this thread records there.
class Recording {
 public:
  explicit Recording(ThreadSpans* spans) : before_(detail::t_spans) { detail::t_spans = spans; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() { detail::t_spans = before_; }

 private:
  ThreadSpans* before_;
};

/// One span of this thread, from here to the end of the block. `work` is called where something records, and only there.
class Scope {
 public:
  explicit Scope(Kind kind, int64_t index = -1) : spans_(detail::t_spans) {
    if (spans_ != nullptr) begin(kind, index, 0);
  }
  template <class Work>
    requires std::is_invocable_r_v<int64_t, Work>
  Scope(Kind kind, const Work& work) : spans_(detail::t_spans) {
    if (spans_ != nullptr) begin(kind, -1, static_cast<int64_t>(work()));
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    if (spans_ != nullptr) end();
  }

 private:
  void begin(Kind kind, int64_t index, int64_t work);
  void end();

  ThreadSpans* spans_;
  Span span_;
};

}  // namespace lockstep::profile
