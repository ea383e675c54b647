// The way of a node's agent through a job, and its end.
#include "lockstep/launch/agent_nodes.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/agent_nodes_impl.h"
#include "lockstep/launch/host_name.h"
#include "lockstep/launch/rdzv_settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

namespace lockstep::launch {
namespace {

/// After the end: for the last words to get through.
constexpr Milliseconds kFarewell{7'000};
constexpr const char* kHostListPrefix = "lockstep-hosts-tmp.";

}  // namespace

NodesAgent::NodesAgent(const RunSpec& spec, const MeetingSpec& meeting, NodeJob& job)
    : spec_(spec), meeting_(meeting), job_(job), host_name_(own_host_name()), host_list_folder_(kHostListPrefix) {}

int NodesAgent::run() {
  TempFolder::remove_abandoned(kHostListPrefix);
  require_token();
  const bool hosts = host_if_here();
  open_store(hosts);
  join(hosts);
  while (!is_over()) {
    job_.step(Milliseconds(1'000), &loop_);
    if (job_.interrupted_by() != 0 && !leaving_) begin_to_leave();
    if (has_round_ended()) tell_outcome();
  }
  say_farewell();
  return finish();
}

rendezvous::Cause NodesAgent::interrupt_cause() const {
  const int signal = job_.interrupted_by();
  return own_cause(ErrorKind::Peer, 128 + signal,
                   fmt::format("the launcher was stopped by SIG{}", sigabbrev_np(signal)));
}

/// Somebody stopped a launcher: the workers may save what they have.
bool NodesAgent::is_interrupt(const rendezvous::Cause& cause) {
  return cause.kind == ErrorKind::Peer && cause.world_rank < 0 && cause.exit_code > 128;
}

std::string NodesAgent::with_node(const rendezvous::Cause& cause) {
  const std::string text = cause.text.substr(0, cause.text.find_last_not_of('.') + 1);
  return names_its_node(cause) ? text : cause.node + ": " + text;
}

bool NodesAgent::names_its_node(const rendezvous::Cause& cause) {
  return cause.node.empty() || cause.text.starts_with(cause.node);
}

void NodesAgent::begin_to_leave() {
  leaving_ = true;
  if (coordinator_) coordinator_->abort(interrupt_cause());
  if (round_ == 0 || told_) return link_->leave(interrupt_cause());
  if (!stopping_) link_->outcome(round_, interrupt_cause());
}

void NodesAgent::end_job(const rendezvous::End& end) {
  end_ = end;
  if (!job_.running() || leaving_) return;
  if (end.cause) job_.say(with_node(*end.cause) + "; the workers here are stopped");
  if (!end.cause || is_interrupt(*end.cause)) return job_.stop(SIGTERM, spec_.shutdown_timeout);
  job_.give_up(spec_.shutdown_timeout);
}

void NodesAgent::lose(ErrorKind kind, const std::string& text) {
  lost_ = {kind, text};
  if (job_.running()) {
    job_.say(text.substr(0, text.find_last_not_of('.') + 1) + "; the workers here are stopped");
    job_.give_up(spec_.shutdown_timeout);
  }
}

bool NodesAgent::is_over() const {
  if (job_.running()) return false;
  if (lost_ || end_) return true;
  return leaving_ && link_->is_over();
}

void NodesAgent::say_farewell() {
  const Deadline deadline = Deadline::in(kFarewell);
  while (!deadline.passed() && ((coordinator_ && !coordinator_->is_finished()) || !link_->is_over())) {
    if (!coordinator_ && (lost_ || end_)) break;
    job_.step(std::min(deadline.remaining(), Milliseconds(50)), &loop_);
  }
}

bool NodesAgent::is_own(const rendezvous::Cause& cause) const {
  // Names may be equal, and before a round no node has a rank.
  return cause.group_rank >= 0 && cause.group_rank == group_rank_;
}

int NodesAgent::finish() {
  if (round_ != 0 && !told_) outcome_ = job_.take_outcome();
  if (lost_ && !leaving_) {
    return job_.finish(outcome_, lost_->second, exit_code(lost_->first));
  }
  if (!start_failure_.empty()) return job_.finish(outcome_, start_failure_, outcome_.exit_code);
  if (end_ && end_->cause && !is_own(*end_->cause) && !leaving_) {
    const rendezvous::Cause& cause = *end_->cause;
    // The workers of all nodes have saved: on this one too the job can be continued.
    const bool can_continue = is_interrupt(cause) && outcome_.exit_code == exit_code(ErrorKind::Resumable);
    if (can_continue) return job_.finish(outcome_, {}, 0);
    const std::string where = names_its_node(cause) ? "" : " on " + cause.node;
    return job_.finish(outcome_, fmt::format("the job failed{}: {}", where, cause.text), cause.exit_code);
  }
  if (leaving_ && outcome_.ends.empty()) {
    return job_.finish(outcome_, interrupt_cause().text + " before its workers had started", 128 + job_.interrupted_by());
  }
  if (end_ && !end_->cause && round_ == 0 && !leaving_) job_.say("the job had ended well before this node came");
  return job_.finish(outcome_, {}, 0);
}

MeetingSpec make_meeting(const RunSpec& spec) {
  const RdzvSettings settings = read_rdzv_settings(spec.rdzv_conf);
  MeetingSpec meeting;
  if (static_cast<size_t>(spec.max_nodes) > rendezvous::kMaxNodes) {
    throw Error::usage("--nnodes = {}: a job has at most {} nodes.", spec.max_nodes, rendezvous::kMaxNodes);
  }
  meeting.backend = spec.meeting == Meeting::Static ? rendezvous::Backend::Static : rendezvous::Backend::C10d;
  meeting.membership.backend = meeting.backend;
  meeting.membership.min_nodes = spec.min_nodes;
  meeting.membership.max_nodes = spec.max_nodes;
  meeting.membership.max_restarts = spec.max_restarts;
  if (settings.join_timeout) meeting.membership.join_timeout = *settings.join_timeout;
  if (settings.last_call_timeout) meeting.membership.last_call = *settings.last_call_timeout;
  if (settings.dead) meeting.membership.dead = *settings.dead;
  meeting.membership.stop_timeout = spec.shutdown_timeout + std::chrono::seconds(15);
  meeting.is_host = settings.is_host;
  meeting.require_token = settings.require_token;
  return meeting;
}

int run_on_nodes(const RunSpec& spec, const MeetingSpec& meeting, NodeJob& job) {
  return NodesAgent(spec, meeting, job).run();
}

}  // namespace lockstep::launch
