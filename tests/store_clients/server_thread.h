#pragma once

#include "lockstep/rendezvous/store_server.h"

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::rendezvous {

/// A StoreServer on a loopback address, on a thread of its own, for clients that block.
class ServerThread {
 public:
  ServerThread();
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
  ~ServerThread();

  const net::Address& address() const { return address_; }
  uint16_t port() const { return address_.port(); }
  std::vector<std::string> log() const;
  StoreServer::Statistics statistics();

 private:
  void run(net::ListenSocket socket);

  net::Address address_;
  UniqueFd wake_;  ///< an eventfd: work_ has something, or the end has come
  mutable std::mutex mutex_;  ///< guards what follows
  std::vector<std::string> log_;
  std::vector<std::function<void(StoreServer&)>> work_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace lockstep::rendezvous
