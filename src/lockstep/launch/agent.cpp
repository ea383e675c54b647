#include "lockstep/launch/agent.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/node_run.h"
#include "lockstep/launch/torchrun_environment.h"
#include "lockstep/net/event_loop.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace lockstep::launch {

namespace {

/// Bound but not listening: the kernel gives the port to nobody else, and a worker that sets SO_REUSEADDR may have it.
class ReservedPort final : public WorkerStore {
 public:
  explicit ReservedPort(uint16_t wanted) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(wanted);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (bind(fd_.get(), plain, size) != 0) {
      throw Error::environment("port {} for the workers' store: {}. Give another --master_port, or leave it out: any "
                               "free one is taken.", wanted, std::strerror(errno));
    }
    getsockname(fd_.get(), plain, &size);
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const override { return port_; }
  void clear() override {}

 private:
  UniqueFd fd_;
  uint16_t port_ = 0;
};

/// Without a round there is nothing to wait for: a signal that came in between ends the job here.
bool runs_to_its_end(NodeRun& node, net::EventLoop& loop) {
  while (node.running()) node.step(Milliseconds::max(), &loop);
  return node.interrupted_by() == 0;
}

}  // namespace

std::unique_ptr<WorkerStore> reserve_port(net::EventLoop&, const StoreRequest& request) {
  return std::make_unique<ReservedPort>(request.port);
}

int run_single_node(const RunSpec& spec, const OpenStore& open_store) {
  net::EventLoop loop;
  const std::unique_ptr<WorkerStore> store = open_store(
      loop, {.host = spec.endpoint_host, .port = spec.endpoint_port, .is_served = spec.use_agent_store});
  NodeRun node(spec);
  if (const std::string note = omp_note(spec); !note.empty()) node.console().say("note: " + note);
  Placement placement = {.world_size = spec.num_workers, .role_world_size = spec.num_workers,
                         .master_addr = spec.endpoint_host, .master_port = store->port()};
  while (true) {
    node.start(placement);
    const bool uninterrupted = runs_to_its_end(node, loop);
    const RoundOutcome outcome = node.take_outcome();
    if (outcome.succeeded || !uninterrupted || placement.restart_count == spec.max_restarts) return node.finish(outcome);
    ++placement.restart_count;
    node.console().say(fmt::format("{}; all workers are started again, restart {} of {}", outcome.cause_text,
                                   placement.restart_count, spec.max_restarts));
    store->clear();
  }
}

}  // namespace lockstep::launch
