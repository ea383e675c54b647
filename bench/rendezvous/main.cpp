// usage: bench_rendezvous AGENTS
// A coordinator in this process, AGENTS agents in another, over loopback, with a token. Prints a line of JSON:
// joined_s: from the first agent's start until the last one has its Round; restart_s: from one agent's failure until all
// have stopped and have the next Round; ended_s: from the last success until all have their End; coordinator_share: of
// one core, over two seconds in which there is nothing but signs of life.
#include "lockstep/rendezvous/agent_link.h"
#include "lockstep/rendezvous/coordinator.h"

#include <fmt/format.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::rendezvous;

constexpr Milliseconds kQuietSpan{2'000};
constexpr Milliseconds kLongest{60'000};

struct Times {
  double joined_s = 0;
  double restart_s = 0;
  double ended_s = 0;
};

class Agents {
 public:
  Agents(int count, uint16_t port, const net::Token& token) {
    AgentLink::Options options;
    options.endpoint = {"127.0.0.1", port};
    options.run_id = "bench";
    options.token = token;
    options.join.min_nodes = options.join.max_nodes = static_cast<uint32_t>(count);
    options.join.max_restarts = 1;
    options.join.store_port = 29500;
    links_.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < links_.size(); ++i) {
      options.join.host_name = fmt::format("node{}", i);
      AgentLink::Callbacks callbacks;
      callbacks.on_round = [this, i](const Round& round, int rank) {
        if (rank != static_cast<int>(i) || round.members.size() != links_.size()) throw Error::internal("wrong round");
        ++num_rounds_;
      };
      callbacks.on_stop = [this, i](const Stop& stop) { links_[i]->stopped(stop.round); };
      callbacks.on_end = [this](const End& end) {
        if (end.cause) throw Error::internal("{}", end.cause->text);
        ++num_ends_;
      };
      callbacks.on_lost = [](ErrorKind kind, const std::string& text) { throw Error(kind, text); };
      links_[i] = std::make_unique<AgentLink>(loop_, options, std::move(callbacks));
    }
  }

  Times run() {
    Times times;
    Clock::time_point start = Clock::now();
    until(num_rounds_, links_.size());
    times.joined_s = seconds_since(start);

    start = Clock::now();
    links_.back()->outcome(1, Cause{.kind = ErrorKind::Internal, .exit_code = 1, .text = "a failure"});
    until(num_rounds_, 2 * links_.size());
    times.restart_s = seconds_since(start);

    const Deadline quiet = Deadline::in(kQuietSpan);
    while (!quiet.passed()) loop_.run_once(quiet.remaining());

    start = Clock::now();
    for (const auto& link : links_) link->outcome(2, std::nullopt);
    until(num_ends_, links_.size());
    times.ended_s = seconds_since(start);
    return times;
  }

 private:
  void until(const size_t& count, size_t wanted) {
    const Deadline deadline = Deadline::in(kLongest);
    while (count < wanted) {
      if (deadline.passed()) throw Error::timeout("{} of {} after {} ms", count, wanted, kLongest.count());
      loop_.run_once(deadline.remaining());
    }
  }
  net::EventLoop loop_;
  std::vector<std::unique_ptr<AgentLink>> links_;
  size_t num_rounds_ = 0;
  size_t num_ends_ = 0;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Turns until the job has ended. Returns the share of a core that the quiet second round took.
double coordinate(Coordinator& coordinator, net::EventLoop& loop) {
  const Deadline deadline = Deadline::in(3 * kLongest);
  // Well inside the quiet span, away from the restart before it and the end after it.
  const Milliseconds skipped = kQuietSpan / 8;
  Clock::time_point start{};
  double cpu = 0;
  double share = -1;
  loop.run_once(kLongest);
  while (!coordinator.is_finished()) {
    if (deadline.passed()) throw Error::timeout("the job did not end");
    if (start == Clock::time_point() && coordinator.membership().round == 2) {
      start = Clock::now();
      loop.after(skipped, [&] { cpu = cpu_seconds(); });
      loop.after(kQuietSpan - skipped, [&] {
        share = (cpu_seconds() - cpu) / std::chrono::duration<double>(kQuietSpan - 2 * skipped).count();
      });
    }
    loop.run_once(deadline.remaining());
  }
  return share;
}

void raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int simulate_agents(int count, uint16_t port, const net::Token& token, int results) {
  const Times times = Agents(count, port, token).run();
  const std::string line = fmt::format("\"joined_s\": {:.4f}, \"restart_s\": {:.4f}, \"ended_s\": {:.4f}", times.joined_s,
                                       times.restart_s, times.ended_s);
  return ::write(results, line.data(), line.size()) == static_cast<ssize_t>(line.size()) ? 0 : 1;
}

int run(int count) {
  raise_descriptor_limit();
  const net::Token token = net::Token::make();
  net::ListenSocket socket = net::ListenSocket::open(std::nullopt, 0);
  int results[2];
  if (::pipe(results) != 0) throw Error::environment("cannot make a pipe");
  const uint16_t port = socket.port();
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(results[0]);
    return simulate_agents(count, port, token, results[1]);
  }
  ::close(results[1]);

  net::EventLoop loop;
  Coordinator::Options options{.run_id = "bench", .token = token};
  options.membership.min_nodes = options.membership.max_nodes = count;
  options.membership.max_restarts = 1;
  Coordinator coordinator(loop, options, {.log = [](log::Level level, const std::string& line) {
                            if (level >= log::Level::Warning) fmt::print(stderr, "{}\n", line);
                          }});
  coordinator.listen(std::move(socket));
  const double share = coordinate(coordinator, loop);
  std::string line(4096, '\0');
  const ssize_t got = ::read(results[0], line.data(), line.size());
  int status = 1;
  ::waitpid(child, &status, 0);
  if (status != 0 || got <= 0) throw Error::internal("the agents failed");
  line.resize(static_cast<size_t>(got));
  fmt::print("{{\"agents\": {}, {}, \"coordinator_share\": {:.4f}}}\n", count, line, share);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw lockstep::Error::usage("usage: bench_rendezvous AGENTS");
    return run(std::stoi(argv[1]));
  } catch (const std::exception& problem) {
    fmt::print(stderr, "bench_rendezvous: {}\n", problem.what());
    return 1;
  }
}
