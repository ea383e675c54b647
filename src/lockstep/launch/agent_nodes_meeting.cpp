// How a node comes to the others.
#include "lockstep/base/error.h"
#include "lockstep/launch/absent_host.h"
#include "lockstep/launch/agent_nodes_impl.h"
#include "lockstep/launch/limits.h"
#include "lockstep/net/connect.h"
#include "lockstep/rendezvous/hosting.h"

#include <unistd.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

/// To learn whether somebody answers at the endpoint.
constexpr Milliseconds kProbe{1'000};
constexpr Milliseconds kBetweenLines{5'000};
constexpr Milliseconds kForeignWhereOnlyThisHostCanServe{300};

}  // namespace

void NodesAgent::require_token() const {
  if (!meeting_.require_token || meeting_.token) return;
  throw Error::usage("--rdzv_conf require_token=1: there is no token. Give --rdzv_conf token_file=FILE on every node, or "
                     "set LOCKSTEP_JOB_TOKEN.");
}

bool NodesAgent::host_if_here() {
  rendezvous::HostQuestion question = host_question(spec_, meeting_, host_name_);
  if (is_static() && spec_.node_rank == 0 && !question.is_host) {
    question.is_host = rendezvous::should_host(question).host || hosts_elsewhere(question.resolved.addresses);
  }
  if (!rendezvous::should_host(question).host) return false;
  // Else the others would wait at a port where nobody can be accepted.
  const std::string problem = serving_problem(current_limits(), spec_.min_nodes, spec_.num_workers);
  if (!problem.empty()) throw Error(ErrorKind::Environment, problem);
  for (const net::Address& address : question.resolved.addresses) {
    if (!address.is_loopback() && !address.is_any()) known_as_ = address.host();
  }
  may_host_ = question;
  return host_if_free();
}

bool NodesAgent::host_if_free() {
  auto socket = rendezvous::try_to_host(*may_host_);
  if (!socket) return false;
  host(std::move(*socket));
  return true;
}

bool NodesAgent::hosts_elsewhere(const std::vector<net::Address>& addresses) {
  std::optional<bool> answers;
  std::optional<net::Connector> probe;
  if (addresses.empty()) {
    answers = false;
  } else {
    probe.emplace(loop_, addresses, kProbe, [&](const net::Connected& connected) {
      answers = connected.failure == net::ConnectFailure::None;
    });
  }
  while (!answers) loop_.run_once(kProbe);
  if (*answers) return false;
  job_.say(fmt::format("warning: node rank 0 serves the meeting, and {} is no address of this host ({}). Where it does not "
                       "lead here either, give rank 0 to the host of that address.", spec_.endpoint_host, host_name_));
  return true;
}

void NodesAgent::host(net::ListenSocket socket) {
  if (!meeting_.token) {
    job_.say("warning: the nodes meet without a token, so whoever reaches this port and knows the run id can join. "
             "Give --rdzv_conf token_file=FILE on every node, or set LOCKSTEP_JOB_TOKEN.");
  }
  rendezvous::Coordinator::Callbacks callbacks;
  callbacks.log = [this](log::Level level, const std::string& line) {
    if (level >= log::Level::Warning || meeting_.logs_info) job_.say(line);
  };
  if (is_static()) {
    callbacks.on_store_client = [this](UniqueFd fd, std::string_view first_bytes, const net::Address&) {
      // The store asks by itself who that is, and says so when it is nobody.
      store_->adopt(std::move(fd), first_bytes);
    };
  }
  coordinator_.emplace(loop_, rendezvous::Coordinator::Options{.run_id = spec_.run_id, .token = meeting_.token,
                                                               .membership = meeting_.membership},
                       std::move(callbacks));
  coordinator_->listen(std::move(socket));
}

void NodesAgent::open_store(bool hosts) {
  const auto log = [this](const std::string& line) { job_.say("store: " + line); };
  std::vector<net::ListenSocket> sockets;
  if (!spec_.use_agent_store) {
    reserved_ = reserve_port(loop_, {.host = {}, .port = 0, .is_served = false});
  } else if (!is_static()) {
    sockets.push_back(net::ListenSocket::open(std::nullopt, 0));
  }
  store_.emplace(loop_, std::move(sockets), rendezvous::StoreServer::Limits{},
                 [this](const net::Address& peer) { return is_member(peer); }, log);
  store_port_ = reserved_ ? reserved_->port() : is_static() && hosts ? coordinator_->port() : store_->port();
}

bool NodesAgent::is_member(const net::Address& peer) const {
  if (coordinator_ && coordinator_->is_member_address(peer)) return true;
  return peer.is_loopback() || std::any_of(members_.begin(), members_.end(),
                                           [&](const net::Address& member) { return member.same_host(peer); });
}

void NodesAgent::join(bool hosts) {
  rendezvous::AgentLink::Options options;
  options.endpoint = hosts ? net::Endpoint{"127.0.0.1", coordinator_->port()}
                           : net::Endpoint{spec_.endpoint_host, spec_.endpoint_port};
  options.run_id = spec_.run_id;
  options.token = meeting_.token;
  options.join = join_message();
  options.join_timeout = meeting_.membership.join_timeout;
  options.suspect = meeting_.membership.suspect;
  options.dead = meeting_.membership.dead;
  if (may_host_ && !hosts) {
    options.before_attempt = [this]() -> std::optional<net::Endpoint> {
      if (coordinator_ || !host_if_free()) return std::nullopt;
      return net::Endpoint{"127.0.0.1", coordinator_->port()};
    };
    // Nobody else can serve: a program that is no launcher is told at once.
    if (may_host_->is_host.value_or(false)) options.foreign_timeout = kForeignWhereOnlyThisHostCanServe;
  }
  rendezvous::AgentLink::Callbacks callbacks;
  callbacks.on_waiting = [this](const std::string& line) { job_.say(line); };
  callbacks.on_status = [this](const rendezvous::Status& status) { tell_status(status); };
  callbacks.on_round = [this](const rendezvous::Round& round, int group_rank) { begin_round(round, group_rank); };
  callbacks.on_stop = [this](const rendezvous::Stop& stop) { stop_round(stop); };
  callbacks.on_end = [this](const rendezvous::End& end) { end_job(end); };
  callbacks.on_lost = [this](ErrorKind kind, const std::string& text) { lose(kind, text); };
  waits_since_ = Clock::now();
  link_.emplace(loop_, std::move(options), std::move(callbacks));
}

rendezvous::Join NodesAgent::join_message() const {
  rendezvous::Join join;
  join.host_name = host_name_;
  // First the one that the others were told, if it is known.
  if (!known_as_.empty()) join.addresses.push_back(known_as_);
  for (const net::Address& address : net::local_addresses()) {
    if (!address.is_loopback() && address.host() != known_as_) join.addresses.push_back(address.host());
  }
  join.local_addr = spec_.local_addr;
  join.store_port = store_port_;
  join.nproc = static_cast<uint32_t>(spec_.num_workers);
  join.role = spec_.role;
  if (spec_.node_rank) join.wanted_rank = *spec_.node_rank;
  join.rank_origin = meeting_.rank_origin;
  join.program = spec_.entry_name;
  join.pid = static_cast<uint32_t>(getpid());
  join.backend = meeting_.backend;
  join.min_nodes = static_cast<uint32_t>(spec_.min_nodes);
  join.max_nodes = static_cast<uint32_t>(spec_.max_nodes);
  join.max_restarts = static_cast<uint32_t>(spec_.max_restarts);
  return join;
}

void NodesAgent::tell_status(const rendezvous::Status& status) {
  const Clock::time_point now = Clock::now();
  if (now - waits_since_ < kBetweenLines) return;
  waits_since_ = now;
  job_.say(status.reason);
}

}  // namespace lockstep::launch
