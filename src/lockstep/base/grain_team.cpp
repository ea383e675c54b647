#include "lockstep/base/grain_team.h"

#include "lockstep/base/error.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

thread_local GrainTeam* team_of_thread = nullptr;

/// Some tens of microseconds: what lies between two kernels of a grain.
constexpr int kSpins = 2000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Returns when `value` is no longer `old`.
template <class T>
void await_change(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_briefly();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct GrainTeam::Impl {
  Impl(int num_parts, int num_threads) : parts(num_parts), threads(num_threads) {
    for (int thread = 1; thread < threads; ++thread) {
      try {
        helpers.emplace_back([this, thread] { help(thread); });
      } catch (const std::system_error& problem) {
        stop();
        throw Error::environment("thread {} of {} of a grain cannot be started: {}. Use fewer (--threads_per_process).",
                                 thread + 1, threads, problem.code().message());
      }
    }
  }
  ~Impl() { stop(); }

  void stop() {
    stopping.store(true, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  void help(int thread) {
    for (uint64_t seen = 0;;) {
      await_change(generation, seen);
      seen = generation.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      do_parts(thread);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) busy.notify_all();
    }
  }

  void do_parts(int thread) {
    for (int part = thread; part < parts; part += threads) {
      try {
        (*work)(part);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (failure == nullptr || part < failed_part) {
          failure = std::current_exception();
          failed_part = part;
        }
      }
    }
  }

  const int parts, threads;
  std::atomic<uint64_t> generation = 0;  ///< counts runs
  std::atomic<int> busy = 0;             ///< helpers in the present run
  std::atomic<bool> stopping = false;
  const std::function<void(int)>* work = nullptr;  ///< written before the generation changes
  std::mutex mutex;                                ///< guards failure, failed_part
  std::exception_ptr failure;
  int failed_part = 0;
  std::vector<std::jthread> helpers;  ///< last member: joined before the others are destroyed
};

GrainTeam::GrainTeam(int parts, int threads) : parts_(parts) {
  LS_CHECK(parts >= 1 && threads >= 1 && threads <= parts, "a grain's team of {} parts and {} threads", parts, threads);
  impl_ = std::make_unique<Impl>(parts, threads);
}

GrainTeam::~GrainTeam() = default;

void GrainTeam::run(const std::function<void(int part)>& work) {
  Impl& team = *impl_;
  const GrainTeamScope alone(nullptr);
  team.work = &work;
  team.busy.store(team.threads - 1, std::memory_order_relaxed);
  team.generation.fetch_add(1, std::memory_order_release);
  team.generation.notify_all();
  team.do_parts(0);
  for (int left = team.busy.load(std::memory_order_acquire); left > 0; left = team.busy.load(std::memory_order_acquire)) {
    await_change(team.busy, left);
  }
  if (team.failure != nullptr) std::rethrow_exception(std::exchange(team.failure, nullptr));
}

GrainTeam* GrainTeam::of_this_thread() { return team_of_thread; }

GrainTeamScope::GrainTeamScope(GrainTeam* team) : before_(std::exchange(team_of_thread, team)) {}
GrainTeamScope::~GrainTeamScope() { team_of_thread = before_; }

}  // namespace lockstep
