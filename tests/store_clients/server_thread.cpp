#include "store_clients/server_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <utility>

namespace lockstep::rendezvous {

ServerThread::ServerThread() : wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  // libtorch's client asks for the name of the address it connects to, the loopback's too. Where the name server drops a
  // question, that costs five seconds, or one like this. Read by the resolver at its first use.
  ::setenv("RES_OPTIONS", "timeout:1 attempts:1", 0);
  net::ListenSocket socket = net::ListenSocket::open(net::Address::loopback_v4(0), 0);
  address_ = socket.local();
  thread_ = std::thread([this, own = std::move(socket)]() mutable { run(std::move(own)); });
}

ServerThread::~ServerThread() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void ServerThread::run(net::ListenSocket socket) {
  net::EventLoop loop;
  std::vector<net::ListenSocket> sockets;
  sockets.push_back(std::move(socket));
  StoreServer server(loop, std::move(sockets), {}, [](const net::Address& peer) { return peer.is_loopback(); },
                     [this](const std::string& line) {
                       const std::lock_guard lock(mutex_);
                       log_.push_back(line);
                     });
  bool over = false;
  loop.watch(wake_.get(), EPOLLIN, [&](uint32_t) {
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
    std::vector<std::function<void(StoreServer&)>> work;
    {
      const std::lock_guard lock(mutex_);
      work.swap(work_);
      over = over_;
    }
    for (const auto& item : work) item(server);
  });
  while (!over) loop.run_once(Milliseconds(60'000));
}

std::vector<std::string> ServerThread::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

StoreServer::Statistics ServerThread::statistics() {
  std::promise<StoreServer::Statistics> promise;
  {
    const std::lock_guard lock(mutex_);
    work_.push_back([&](StoreServer& server) { promise.set_value(server.statistics()); });
  }
  ::eventfd_write(wake_.get(), 1);
  return promise.get_future().get();
}

}  // namespace lockstep::rendezvous
