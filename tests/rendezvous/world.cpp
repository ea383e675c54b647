#include "world.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::rendezvous {

World::World(Coordinator::Options options, bool with_store) : settings(std::move(options)) {
  Coordinator::Callbacks callbacks{.log = [this](log::Level, const std::string& line) { lines.push_back(line); }};
  if (with_store) {
    callbacks.on_store_client = [this](UniqueFd, std::string_view bytes, const net::Address&) {
      store_clients.emplace_back(bytes);
    };
  }
  coordinator = std::make_unique<Coordinator>(loop, settings, std::move(callbacks));
  coordinator->listen(net::ListenSocket::open(std::nullopt, 0));
}

Coordinator::Options World::options(int min_nodes, int max_nodes, int max_restarts) {
  Coordinator::Options options;
  options.run_id = "job-1";
  options.membership.min_nodes = min_nodes;
  options.membership.max_nodes = max_nodes;
  options.membership.max_restarts = max_restarts;
  options.membership.last_call = Milliseconds(60);
  options.membership.join_timeout = Milliseconds(20'000);
  return options;
}

AgentLink::Options World::agent_options(const std::string& host_name) const {
  AgentLink::Options options;
  options.endpoint = {"127.0.0.1", coordinator->port()};
  options.run_id = settings.run_id;
  options.token = settings.token;
  options.join_timeout = Milliseconds(20'000);
  options.join.host_name = host_name;
  options.join.store_port = 1234;
  options.join.backend = settings.membership.backend;
  options.join.min_nodes = static_cast<uint32_t>(settings.membership.min_nodes);
  options.join.max_nodes = static_cast<uint32_t>(settings.membership.max_nodes);
  options.join.max_restarts = static_cast<uint32_t>(settings.membership.max_restarts);
  return options;
}

Agent& World::add(AgentLink::Options options) {
  Agent& agent = *agents.emplace_back(std::make_unique<Agent>());
  AgentLink::Callbacks callbacks;
  callbacks.on_joined = [&agent](const net::Address&, const net::Address&) { agent.joined = true; };
  callbacks.on_waiting = [&agent](const std::string& line) { agent.waiting.push_back(line); };
  callbacks.on_status = [&agent](const Status& status) { agent.statuses.push_back(status); };
  callbacks.on_round = [&agent](const Round& round, int rank) {
    agent.round = round;
    agent.rank = rank;
  };
  callbacks.on_stop = [&agent](const Stop& stop) {
    agent.stops.push_back(stop);
    if (agent.answers_stop) agent.link->stopped(stop.round);
  };
  callbacks.on_end = [&agent](const End& end) { agent.end = end; };
  callbacks.on_lost = [&agent](ErrorKind kind, const std::string& text) { agent.lost.emplace(kind, text); };
  agent.link = std::make_unique<AgentLink>(loop, std::move(options), std::move(callbacks));
  return agent;
}

std::vector<Agent*> World::add_all(int count) {
  std::vector<Agent*> added;
  for (int i = 1; i <= count; ++i) added.push_back(&add(fmt::format("n{}", i)));
  EXPECT_TRUE(until([&] { return std::all_of(added.begin(), added.end(), [](Agent* a) { return a->round.has_value(); }); }))
      << all_lines();
  return added;
}

bool World::until(const std::function<bool()>& done) {
  const Deadline deadline = Deadline::in(Milliseconds(10'000));
  while (!done()) {
    if (deadline.passed()) return false;
    loop.run_once(deadline.remaining());
  }
  return true;
}

void World::turn_for(Milliseconds span) {
  const Deadline deadline = Deadline::in(span);
  while (!deadline.passed()) loop.run_once(deadline.remaining());
}

bool World::all_ended() const {
  return std::all_of(agents.begin(), agents.end(), [](const auto& agent) { return agent->end || agent->lost; });
}

int World::count_lines(std::string_view part) const {
  return static_cast<int>(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find(part) != std::string::npos;
  }));
}

std::string World::all_lines() const { return fmt::format("the log:\n{}\n", fmt::join(lines, "\n")); }

UniqueFd World::connect_raw() const {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const net::Address::Raw raw = net::Address::loopback_v4(coordinator->port()).raw();
  EXPECT_EQ(::connect(fd.get(), raw.get(), raw.size), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
  return fd;
}

Cause failure(int exit_code, const std::string& text) { return {.kind = ErrorKind::Internal, .exit_code = exit_code, .text = text}; }

}  // namespace lockstep::rendezvous
