#include "lockstep/launch/supervisor.h"

#include <algorithm>
#include <csignal>

namespace lockstep::launch {

using What = Action::What;

Supervisor::Supervisor(int num_workers, const GroupTimeouts& timeouts, Milliseconds now, Beats beats)
    : timeouts_(timeouts), beats_(beats), workers_(static_cast<size_t>(num_workers)), now_(now) {}

void Supervisor::advance(Milliseconds now) {
  observed_ += std::min(now - now_, kMaxCountedGap);
  now_ = now;
}

void Supervisor::heard(int rank) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (worker.suspect) {
    pending_.push_back({.what = What::Recovered, .rank = rank, .span = observed_ - worker.last_heard});
  }
  worker.suspect = false;
  worker.started = true;
  worker.last_heard = observed_;
  worker.last_runnable.reset();
}

void Supervisor::runnable(int rank) { workers_[static_cast<size_t>(rank)].last_runnable = observed_; }

void Supervisor::failed(int rank, EndClass end_class) {
  workers_[static_cast<size_t>(rank)].failing = true;
  note_failure(end_class);
}

void Supervisor::ended(int rank, EndClass end_class) {
  workers_[static_cast<size_t>(rank)].over = true;
  note_failure(end_class);
}

void Supervisor::note_failure(EndClass end_class) {
  if (end_class == EndClass::Orderly) return;
  const Milliseconds wait = end_class == EndClass::Consequence ? timeouts_.consequence_wait : Milliseconds(0);
  const Milliseconds at = now_ + wait;
  stop_at_ = stop_at_ ? std::min(*stop_at_, at) : at;
}

std::vector<Action> Supervisor::interrupt(int signal) {
  std::vector<Action> actions;
  if (interrupted_by_ != 0) {
    kill_all(actions);
    return actions;
  }
  interrupted_by_ = signal;
  if (!stopping_) {
    stopping_ = true;
    kill_at_ = now_ + timeouts_.interrupt_grace;
  }
  signal_all(signal, actions);
  return actions;
}

std::vector<Action> Supervisor::stop(int signal, Milliseconds grace) {
  std::vector<Action> actions;
  const Milliseconds kill_at = now_ + grace;
  if (!stopping_) signal_all(signal, actions);
  if (!leave_at_) kill_at_ = kill_at_ ? std::min(*kill_at_, kill_at) : kill_at;
  stopping_ = true;
  return actions;
}

void Supervisor::signal_all(int signal, std::vector<Action>& actions) const {
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].over) continue;
    actions.push_back({.what = What::Signal, .rank = static_cast<int>(rank), .signal = signal});
  }
}

std::optional<Milliseconds> Supervisor::next_tick() const {
  std::optional<Milliseconds> soonest;
  for (const std::optional<Milliseconds>& at : {stop_at_, kill_at_, leave_at_}) {
    if (at) soonest = soonest ? std::min(*soonest, *at) : *at;
  }
  if (beats_ == Beats::Expected) soonest = std::min(soonest.value_or(Milliseconds::max()), now_ + kMaxCountedGap / 2);
  return soonest;
}

std::vector<Action> Supervisor::tick() {
  std::vector<Action> actions = std::move(pending_);
  pending_.clear();
  if (!stopping_ && beats_ == Beats::Expected) {
    check_start(actions);
    check_silence(actions);
  }
  if (stop_at_ && now_ >= *stop_at_) begin_stop(actions);
  if (kill_at_ && now_ >= *kill_at_) kill_all(actions);
  if (leave_at_ && now_ >= *leave_at_) {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (workers_[rank].over) continue;
      workers_[rank].over = true;
      actions.push_back({.what = What::Unkillable, .rank = static_cast<int>(rank)});
    }
  }
  return actions;
}

void Supervisor::check_start(std::vector<Action>& actions) {
  const std::vector<int> missing = ranks_missing();
  if (missing.empty()) return;
  if (observed_ >= timeouts_.start) {
    for (const int rank : missing) actions.push_back({.what = What::NotStarted, .rank = rank, .span = observed_});
    stop_at_ = now_;
  } else if (observed_ >= next_waiting_report_) {
    actions.push_back({.what = What::Waiting, .span = observed_});
    next_waiting_report_ *= 2;
  }
}

void Supervisor::check_silence(std::vector<Action>& actions) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!worker.started || worker.over || worker.failing) continue;
    const Milliseconds silence = observed_ - worker.last_heard;
    const bool starves = worker.last_runnable && observed_ - *worker.last_runnable < timeouts_.suspect;
    if (silence >= (starves ? timeouts_.starved : timeouts_.dead)) {
      worker.dead = true;
      actions.push_back({.what = What::Silent, .rank = static_cast<int>(i), .span = silence});
      stop_at_ = now_;
    } else if (silence >= timeouts_.suspect && !worker.suspect) {
      worker.suspect = true;
      actions.push_back({.what = What::Suspect, .rank = static_cast<int>(i), .span = silence});
    }
  }
}

void Supervisor::begin_stop(std::vector<Action>& actions) {
  stop_at_.reset();
  // After an interrupt the workers have been told already; a failure among them only shortens their time.
  const Milliseconds kill_at = now_ + timeouts_.stop_grace;
  kill_at_ = kill_at_ ? std::min(*kill_at_, kill_at) : kill_at;
  if (stopping_) return;
  stopping_ = true;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.over || worker.failing) continue;
    worker.killed = worker.dead;
    actions.push_back(
        {.what = What::Signal, .rank = static_cast<int>(i), .signal = worker.dead ? SIGKILL : timeouts_.failure_signal});
  }
}

void Supervisor::kill_all(std::vector<Action>& actions) {
  stopping_ = true;
  kill_at_.reset();
  if (!leave_at_) leave_at_ = now_ + timeouts_.kill_wait;
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.over || worker.killed) continue;
    worker.killed = true;
    actions.push_back({.what = What::Signal, .rank = static_cast<int>(i), .signal = SIGKILL});
  }
}

bool Supervisor::all_ended() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.over; });
}

std::vector<int> Supervisor::ranks_missing() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i].started && !workers_[i].over) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

std::vector<int> Supervisor::suspects() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].suspect && !workers_[i].over) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

std::vector<int> Supervisor::ranks_present() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].started && !workers_[i].over) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

}  // namespace lockstep::launch
