// How workers and what they leave behind come to their end.
#include "lockstep/base/deadline.h"
#include "lockstep/launch/local_group_impl.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace lockstep::launch {

namespace {

/// For the kernel to end processes that were sent SIGKILL; those in an uninterruptible wait are left behind.
constexpr Milliseconds kOrphanWait{2'000};

std::vector<int> joined(const std::vector<int>& first, const std::vector<int>& second) {
  std::vector<int> all = first;
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

/// Of the calling thread's process; empty where the kernel does not tell.
std::vector<pid_t> children() {
  std::ifstream file(fmt::format("/proc/self/task/{}/children", getpid()));
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

}  // namespace

LocalGroup::Impl::Impl(GroupSettings given, Console& to_console, OutputSink& to_sink)
    : settings(std::move(given)),
      console(to_console),
      sink(to_sink),
      signals(joined(settings.ending_signals, settings.passed_signals)) {
  if (is_own()) return;
  children_before = children();
  guard = std::make_unique<ProcessGuard>();
  prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

LocalGroup::Impl::~Impl() {
  try {
    kill_all_now();
  } catch (const std::exception&) {
    // Of its line for the user alone; destructors do not throw.
  }
  if (!is_own()) prctl(PR_SET_CHILD_SUBREAPER, was_subreaper);
}

void LocalGroup::Impl::kill_all_now() {
  for (Worker& w : workers) {
    if (!w.running) continue;
    kill(-w.process.pid, SIGKILL);
    if (guard) guard->forget(w.process.pid);
  }
  const Deadline deadline = Deadline::in(settings.timeouts.kill_wait);
  pollfd child_ends = {signals.fd(), POLLIN, 0};
  while (!reap_killed() && !deadline.passed()) {
    poll(&child_ends, 1, static_cast<int>(std::min<int64_t>(deadline.remaining().count(), 3'600'000)));
    signals.read();
  }
  for (Worker& w : workers) {
    if (w.running) leave_behind(w);
  }
}

/// True when none is left.
bool LocalGroup::Impl::reap_killed() {
  bool all = true;
  for (Worker& w : workers) {
    if (w.running && waitpid(w.process.pid, nullptr, WNOHANG) != 0) w.running = false;
    all = all && !w.running;
  }
  return all;
}

/// Not waited for: this process ends, and init inherits the worker once the kernel lets go of it.
void LocalGroup::Impl::leave_behind(Worker& w) {
  w.running = false;
  w.end.still_there = true;
  if (!w.end.verdict) w.end.time = unix_seconds();
  const pid_t pid = w.process.pid;
  console.say(fmt::format("rank {} (pid {}) does not end although it was killed (process state {}): left behind",
                          w.end.world_rank, pid, process_state(pid)));
}

void LocalGroup::Impl::reap() {
  if (!is_own()) return reap_all_children();
  for (Worker& w : workers) {
    if (w.running) reap_one(w);
  }
}

void LocalGroup::Impl::reap_one(Worker& w) {
  const auto state = reap_worker(w.process.pid);
  if (!state) return;
  if (guard) guard->forget(w.process.pid);
  w.running = false;
  w.end.exit_status = state->exit_status;
  w.end.signal = state->signal;
  if (!w.end.verdict) w.end.time = unix_seconds();
  read_control(w);
  w.process.control.reset();
  drain_output(w, Stream::Out);
  drain_output(w, Stream::Err);
  if (is_own() && !w.end.record) w.end.record = read_error_record(settings.record_folder, w.end.world_rank);
  const bool was_asked = w.end.signals_sent != 0 || w.end.verdict;
  w.end.left_early = is_own() && !w.has_joined && !was_asked && state->signal == 0 && state->exit_status == 0;
  if (supervisor) supervisor->ended(w.end.local_rank, classify(w.end));
}

/// Somebody has killed it.
void LocalGroup::Impl::replace_guard() {
  guard.reset();  // reaps it
  try {
    guard = std::make_unique<ProcessGuard>();
    for (const Worker& w : workers) {
      if (w.running) guard->watch(w.process.pid);
    }
    console.say("the process that ends the workers' processes should this one be killed was killed itself; there is a new one");
  } catch (const Error& error) {
    console.say(fmt::format("the process that ends the workers' processes should this one be killed was killed itself: {}", error.what()));
  }
}

/// Workers, and what they have left behind: that has become this process's child too.
void LocalGroup::Impl::reap_all_children() {
  while (true) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto found = std::find_if(workers.begin(), workers.end(), [&](const Worker& w) {
      return w.running && w.process.pid == info.si_pid;
    });
    if (found != workers.end()) {
      reap_one(*found);
    } else if (guard && info.si_pid == guard->pid()) {
      replace_guard();
    } else {
      waitpid(info.si_pid, nullptr, 0);
    }
  }
}

/// After a round that did not end well, nothing of it may hold a device or a port in the next one. After a success,
/// what a worker has put into a session of its own was meant to stay.
void LocalGroup::Impl::kill_orphans() {
  if (is_own()) return;
  const bool ended_well = std::all_of(workers.begin(), workers.end(), [](const Worker& w) {
    return w.end.signal == 0 && w.end.exit_status == 0 && !w.end.still_there;
  });
  if (ended_well) return;
  const auto is_known = [&](pid_t pid) {
    const bool was_there = std::find(children_before.begin(), children_before.end(), pid) != children_before.end();
    return was_there || (guard && pid == guard->pid()) || std::any_of(workers.begin(), workers.end(), [&](const Worker& w) {
             return w.process.pid == pid && w.end.still_there;
           });
  };
  const Deadline deadline = Deadline::in(kOrphanWait);
  while (!deadline.passed()) {
    std::vector<pid_t> orphans = children();
    std::erase_if(orphans, is_known);
    if (orphans.empty()) return;
    for (const pid_t pid : orphans) kill(pid, SIGKILL);
    // Their own children come to this process only as they end, hence the loop.
    poll(nullptr, 0, 2);
    reap_all_children();
  }
}

}  // namespace lockstep::launch
