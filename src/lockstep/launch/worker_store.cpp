#include "lockstep/launch/worker_store.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/net/listen.h"

namespace lockstep::launch {
namespace {

/// "localhost" may mean either family to a client, so both are served where there are both.
std::vector<net::ListenSocket> loopback_sockets(uint16_t wanted) {
  std::vector<net::ListenSocket> sockets;
  sockets.push_back(net::ListenSocket::open(net::Address::loopback_v4(wanted), wanted));
  const uint16_t port = sockets.front().port();
  try {
    if (auto v6 = net::ListenSocket::open_if_free(net::Address::loopback_v6(port), port)) {
      sockets.push_back(std::move(*v6));
    }
  } catch (const Error&) {
    // A host without IPv6.
  }
  return sockets;
}

/// Where a single node's workers are told to look. Anything but loopback is an address of this node that the user named:
/// then all addresses listen, and this node's own are let in.
bool is_loopback(const std::string& host) {
  const auto address = net::Address::parse(host, 0);
  return host == "localhost" || (address && address->is_loopback());
}

std::vector<net::ListenSocket> sockets_for(const StoreRequest& request) {
  if (is_loopback(request.host)) return loopback_sockets(request.port);
  std::vector<net::ListenSocket> sockets;
  sockets.push_back(net::ListenSocket::open(std::nullopt, request.port));
  return sockets;
}

class ServedStore final : public WorkerStore {
 public:
  ServedStore(net::EventLoop& loop, const StoreRequest& request)
      : server_(loop, sockets_for(request), {}, rendezvous::StoreServer::only(net::local_addresses()),
                [](const std::string& line) { log::warn("store", "{}", line); }) {}
  uint16_t port() const override { return server_.port(); }
  void clear() override { server_.clear(); }

 private:
  rendezvous::StoreServer server_;
};

}  // namespace

std::unique_ptr<WorkerStore> open_worker_store(net::EventLoop& loop, const StoreRequest& request) {
  if (!request.is_served) return reserve_port(loop, request);
  return std::make_unique<ServedStore>(loop, request);
}

}  // namespace lockstep::launch
