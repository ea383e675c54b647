#include "lockstep/launch/local_group.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/local_group_impl.h"
#include "lockstep/net/event_loop.h"

#include <algorithm>
#include <chrono>

namespace lockstep::launch {

namespace {

Milliseconds monotonic_now() { return std::chrono::duration_cast<Milliseconds>(Clock::now().time_since_epoch()); }

double seconds(Milliseconds span) { return std::chrono::duration<double>(span).count(); }

bool contains(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace

LocalGroup::LocalGroup(GroupSettings settings, Console& console, OutputSink& sink)
    : impl_(std::make_unique<Impl>(std::move(settings), console, sink)) {}

LocalGroup::~LocalGroup() = default;

void LocalGroup::start(const std::vector<WorkerStart>& workers) { impl_->start(workers); }

void LocalGroup::stop(int signal, Milliseconds grace) {
  if (!impl_->running()) return;
  impl_->supervisor->advance(monotonic_now());
  impl_->act_all(impl_->supervisor->stop(signal, grace));
}

bool LocalGroup::running() const { return impl_->running(); }

const std::string& LocalGroup::done_text() const { return impl_->done_text; }

std::vector<WorkerEnd> LocalGroup::ends() const {
  std::vector<WorkerEnd> ends;
  for (const Impl::Worker& w : impl_->workers) ends.push_back(w.end);
  return ends;
}

void LocalGroup::flush() { impl_->console.flush(impl_->signals); }

void LocalGroup::step(Milliseconds longest, net::EventLoop* loop) {
  Impl& group = *impl_;
  const bool was_running = group.running();
  const std::vector<pollfd> ready = group.wait_for_events(longest, loop);
  if (group.running()) group.supervisor->advance(monotonic_now());
  // Signals first: a child's end is then always seen together with all that it said before.
  bool child_ended = false;
  for (const int signal : group.signals.read()) {
    if (signal == SIGCHLD) child_ended = true;
    else if (const int first = group.take_signal(signal, interrupted_by_); first != 0) interrupted_by_ = first;
  }
  for (const pollfd& descriptor : ready) group.read_from(descriptor.fd);
  if (child_ended) group.reap();
  if (group.running()) {
    for (const int rank : group.supervisor->suspects()) {
      if (has_runnable_thread(group.worker(rank).process.pid)) group.supervisor->runnable(rank);
    }
    group.act_all(group.supervisor->tick());
  }
  if (was_running && !group.running()) group.kill_orphans();
  if (loop != nullptr) loop->run_once(Milliseconds(0));
  group.console.write_some();
}

std::vector<int> LocalGroup::Impl::world_ranks(const std::vector<int>& indexes) const {
  std::vector<int> ranks;
  for (const int index : indexes) ranks.push_back(workers[static_cast<size_t>(index)].end.world_rank);
  return ranks;
}

void LocalGroup::Impl::start(const std::vector<WorkerStart>& starts) {
  LS_CHECK(!running(), "a round of {} workers is still running", workers.size());
  workers.clear();
  supervisor.reset();
  done_text.clear();
  workers.reserve(starts.size());
  try {
    for (const WorkerStart& one : starts) start_one(one);
  } catch (...) {
    kill_all_now();
    throw;
  }
  supervisor.emplace(static_cast<int>(workers.size()), settings.timeouts, monotonic_now(),
                     is_own() ? Supervisor::Beats::Expected : Supervisor::Beats::None);
}

void LocalGroup::Impl::start_one(const WorkerStart& start) {
  Worker added;
  added.process = start_process({.argv = start.argv, .environment = start.environment,
                                 .in = is_own() ? StreamTarget::Null : StreamTarget::Inherit, .out = start.out,
                                 .err = start.err, .has_control = is_own(), .signal_mask = worker_mask(),
                                 .open_files = open_files.before()});
  if (guard) guard->watch(added.process.pid);
  added.end.world_rank = start.world_rank;
  added.end.local_rank = static_cast<int>(workers.size());
  added.end.pid = added.process.pid;
  added.end.is_foreign = !is_own();
  workers.push_back(std::move(added));
}

/// The descriptors that can be read.
std::vector<pollfd> LocalGroup::Impl::wait_for_events(Milliseconds longest, net::EventLoop* loop) {
  std::vector<pollfd> waited = {{signals.fd(), POLLIN, 0}};
  for (Worker& w : workers) {
    if (w.process.control.get() >= 0) waited.push_back({w.process.control.get(), POLLIN, 0});
    for (const Stream stream : {Stream::Out, Stream::Err}) {
      const int fd = pipe_of(w, stream).get();
      if (fd >= 0 && !console.is_full(stream)) waited.push_back({fd, POLLIN, 0});
    }
  }
  console.add_waiting(waited);
  if (loop != nullptr) waited.push_back({loop->fd(), POLLIN, 0});
  if (running()) {
    if (const auto tick = supervisor->next_tick()) {
      longest = std::min(longest, std::max(*tick - monotonic_now(), Milliseconds(0)));
    }
  }
  if (loop != nullptr) longest = loop->until_next_timer(longest);
  const int span = static_cast<int>(std::min<int64_t>(longest.count(), 3'600'000));
  poll(waited.data(), waited.size(), span);
  std::erase_if(waited, [](const pollfd& p) { return p.revents == 0 || (p.events & POLLIN) == 0; });
  return waited;
}

int LocalGroup::Impl::take_signal(int signal, int interrupted_by) {
  if (contains(settings.passed_signals, signal) && !contains(settings.ending_signals, signal)) {
    pass_on(signal);
    return 0;
  }
  const bool is_first = interrupted_by == 0;
  if (running()) {
    console.say(fmt::format("{}: {}", signal_name(signal),
                            is_first ? "passed on to the workers; a second one kills them" : "killing the workers"));
    act_all(supervisor->interrupt(signal));
  }
  return is_first ? signal : 0;
}

void LocalGroup::Impl::pass_on(int signal) {
  console.say(running() ? fmt::format("{}: passed on to the workers, {}", signal_name(signal), settings.passed_words)
                        : fmt::format("{}: has no effect, as no worker runs", signal_name(signal)));
  for (const Worker& w : workers) {
    if (w.running) kill(-w.process.pid, signal);
  }
}

/// Of a worker at its start.
sigset_t LocalGroup::Impl::worker_mask() const {
  sigset_t mask = signals.mask_before();
  if (!is_own()) return mask;
  for (const int signal : settings.passed_signals) sigaddset(&mask, signal);
  return mask;
}

void LocalGroup::Impl::act_all(const std::vector<Action>& actions) {
  for (const Action& action : actions) act(action);
}

void LocalGroup::Impl::send(Worker& w, int signal) {
  if (kill(-w.process.pid, signal) != 0) return;
  if (w.end.signals_sent == 0) w.end.stop_time = unix_seconds();
  w.end.signals_sent |= uint64_t{1} << signal;
}

void LocalGroup::Impl::act(const Action& action) {
  using What = Action::What;
  if (action.what == What::Waiting) {
    return console.say(fmt::format("waiting for {} to start for {:.0f} s (present: {}; {:.0f} s left)",
                                   format_ranks(world_ranks(supervisor->ranks_missing())), seconds(action.span),
                                   format_ranks(world_ranks(supervisor->ranks_present())),
                                   seconds(settings.timeouts.start - action.span)));
  }
  Worker& w = worker(action.rank);
  const int rank = w.end.world_rank;
  const pid_t pid = w.process.pid;
  const auto declare_dead = [&](std::string verdict) {
    w.end.verdict = std::move(verdict);
    w.end.time = unix_seconds();
  };
  switch (action.what) {
    case What::Waiting: return;
    case What::Signal: return send(w, action.signal);
    case What::Suspect: {
      const bool starves = has_runnable_thread(pid);
      return console.say(fmt::format("rank {} (pid {}) has given no sign of life for {:.1f} s ({}); it is taken for dead at "
                                     "{:.1f} s", rank, pid, seconds(action.span),
                                     starves ? "it is ready to run but gets no processor"
                                             : fmt::format("process state {}", process_state(pid)),
                                     seconds(starves ? settings.timeouts.starved : settings.timeouts.dead)));
    }
    case What::Recovered:
      return console.say(fmt::format("rank {} is back after {:.1f} s", rank, seconds(action.span)));
    case What::Silent:
      return declare_dead(silence_message(rank, pid, seconds(action.span), process_state(pid)));
    case What::NotStarted:
      return declare_dead(start_message(world_ranks(supervisor->ranks_missing()),
                                        world_ranks(supervisor->ranks_present()), seconds(action.span)));
    case What::Unkillable:
      return leave_behind(w);
  }
}

}  // namespace lockstep::launch
