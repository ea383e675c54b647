#include "lockstep/base/thread_team.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/cgroup.h"
#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"

namespace lockstep {

struct ThreadTeam::Impl {
  explicit Impl(int num_threads) {
    helpers.reserve(static_cast<size_t>(num_threads));
    for (int thread = 1; thread < num_threads; ++thread) {
      try {
        helpers.emplace_back([this, thread] { help(thread); });
      } catch (const std::system_error& problem) {
        stop();  // no destructor does: those that have started would be waited for
        throw Error::environment("thread {} of {} cannot be started: {}. Use fewer of them (--threads_per_process).",
                                 thread + 1, num_threads, problem.code().message());
      }
    }
  }

  ~Impl() { stop(); }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    wake.notify_all();
  }

  /// What a started thread does: wait for a run, take part in it, say so.
  void help(int thread) {
    uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stopping || generation != seen; });
        if (stopping) return;
        seen = generation;
      }
      take_part(thread);
      const std::lock_guard lock(mutex);
      if (--num_busy == 0) finished.notify_one();
    }
  }

  /// Records where the caller of run() does.
  void take_part(int thread) {
    profile::ThreadSpans* const spans = recorder == nullptr ? nullptr : recorder->thread(thread);
    if (spans == nullptr) return take_items(thread);
    const profile::Recording recording(spans);
    spans->add({.begin_ns = spans->idle_since_ns, .end_ns = profile::now_ns(), .kind = profile::Kind::Threads});
    take_items(thread);
    spans->idle_since_ns = profile::now_ns();
  }

  void take_items(int thread) {
    while (true) {
      const size_t item = next_item.fetch_add(1, std::memory_order_relaxed);
      if (item >= num_items) return;
      try {
        (*work)(item, thread);
      } catch (...) {
        // No new items are handed out; those before this one are already taken, so the lowest failure is known.
        next_item.store(num_items, std::memory_order_relaxed);
        const std::lock_guard lock(mutex);
        if (item < failed_item) {
          failed_item = item;
          failure = std::current_exception();
        }
        return;
      }
    }
  }

  std::mutex mutex;  ///< guards stopping, generation, num_busy, failed_item, failure
  std::condition_variable wake;
  std::condition_variable finished;
  bool stopping = false;
  uint64_t generation = 0;  ///< counts runs
  size_t num_busy = 0;      ///< helpers that have not ended the present run
  size_t failed_item = std::numeric_limits<size_t>::max();
  std::exception_ptr failure;

  // Written by run() before the generation changes; read by helpers after they have seen it change.
  const std::function<void(size_t, int)>* work = nullptr;
  size_t num_items = 0;
  profile::Recorder* recorder = nullptr;
  std::atomic<size_t> next_item{0};

  std::vector<std::jthread> helpers;  ///< last member: joined before the others are destroyed
};

ThreadTeam::ThreadTeam(int num_threads) {
  LS_CHECK(num_threads >= 1, "num_threads = {}", num_threads);
  impl_ = std::make_unique<Impl>(num_threads);
}

ThreadTeam::~ThreadTeam() = default;

int ThreadTeam::size() const { return static_cast<int>(impl_->helpers.size()) + 1; }

void ThreadTeam::run(size_t num_items, const std::function<void(size_t item, int thread)>& work) {
  Impl& team = *impl_;
  {
    const std::lock_guard lock(team.mutex);
    LS_CHECK(team.work == nullptr, "run() was called while another run() of the same team is under way");
    team.work = &work;
    team.num_items = num_items;
    team.recorder = profile::spans_of_this_thread() == nullptr ? nullptr : profile::spans_of_this_thread()->recorder;
    team.next_item.store(0, std::memory_order_relaxed);
    team.failed_item = std::numeric_limits<size_t>::max();
    team.failure = nullptr;
    team.num_busy = team.helpers.size();
    ++team.generation;
  }
  team.wake.notify_all();
  team.take_items(0);
  std::exception_ptr failure;
  {
    const profile::Scope waiting(profile::Kind::Threads);
    std::unique_lock lock(team.mutex);
    team.finished.wait(lock, [&] { return team.num_busy == 0; });
    team.work = nullptr;
    failure = std::exchange(team.failure, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

int available_cores() {
  int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  if (const auto quota = cgroup_cpu_quota("/")) {
    cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(*quota))));
  }
  return cores;
}

}  // namespace lockstep
