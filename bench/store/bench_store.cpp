// Throughput of the store that the agent holds for workers, against libtorch's own server (libuv), in one run.
//
// usage: bench_store [CLIENTS [VALUE_BYTES [ROUNDS [OPERATION]]]]      default 4, 64, 21, all
//
// For each operation the two servers take turns, and the ratio of operations per second is taken between neighbours in
// time. Clients are c10d::TCPStore, a thread each; where it says "pipelined" they are bare connections that send 64
// commands at a time, so that the server and not the clients is what is measured. "cpu_us": the processor time of the
// server's thread for an operation, which other programs on the machine disturb least. Prints JSON; verifies first
// what it times.
#include "lockstep/rendezvous/store_server.h"
#include "raw_connection.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using rendezvous::StoreOp;
using Bytes = std::vector<uint8_t>;

constexpr size_t kBatch = 64;
constexpr size_t kMultiKeys = 16;
constexpr const char* kOurThread = "lockstep_store";
constexpr const char* kTheirThread = "pt_tcpstore_uv";

class OurServer {
 public:
  OurServer() : stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    net::ListenSocket socket = net::ListenSocket::open(net::Address::loopback_v4(0), 0);
    port_ = socket.port();
    thread_ = std::thread([this, own = std::move(socket)]() mutable { run(std::move(own)); });
    ::pthread_setname_np(thread_.native_handle(), kOurThread);
  }
  OurServer(const OurServer&) = delete;
  OurServer& operator=(const OurServer&) = delete;
  ~OurServer() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  uint16_t port() const { return port_; }

 private:
  void run(net::ListenSocket socket) const {
    net::EventLoop loop;
    std::vector<net::ListenSocket> sockets;
    sockets.push_back(std::move(socket));
    rendezvous::StoreServer server(loop, std::move(sockets), {},
                                   [](const net::Address& peer) { return peer.is_loopback(); },
                                   [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
    bool over = false;
    loop.watch(stop_.get(), EPOLLIN, [&](uint32_t) { over = true; });
    while (!over) loop.run_once(Milliseconds(60'000));
  }

  UniqueFd stop_;
  uint16_t port_ = 0;
  std::thread thread_;
};

class LibtorchServer {
 public:
  LibtorchServer() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  uint16_t port() const { return store_->getPort(); }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

/// One client's connections to one server, and what it asks for.
struct Client {
  Client(uint16_t port, size_t index, size_t value_bytes)
      : raw(port), key(fmt::format("rank/{}/some_key", index)), value(value_bytes, 'v') {
    c10d::TCPStoreOptions options;
    options.port = port;
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    for (size_t i = 0; i < kMultiKeys; ++i) keys.push_back(fmt::format("{}/{}", key, i));
    values.assign(kMultiKeys, value);
    raw.send(rendezvous::encode({.op = StoreOp::Validate, .number = rendezvous::kStoreMagic}));
    const std::string wire_key = "/" + key;
    const std::string text(value.begin(), value.end());
    for (size_t i = 0; i < kBatch; ++i) {
      batch_of_sets += rendezvous::encode({.op = StoreOp::Set, .keys = {wire_key}, .values = {text}});
      batch_of_gets += rendezvous::encode({.op = StoreOp::Get, .keys = {wire_key}});
    }
    num_keys = rendezvous::encode({.op = StoreOp::NumKeys});
  }

  c10::intrusive_ptr<c10d::TCPStore> store;
  RawConnection raw;
  std::string key;
  Bytes value;
  std::vector<std::string> keys;
  std::vector<Bytes> values;
  std::string batch_of_sets;
  std::string batch_of_gets;
  std::string num_keys;
};
using Clients = std::vector<std::unique_ptr<Client>>;

struct Operation {
  const char* name;
  size_t calls;     ///< of act, per client and round
  size_t per_call;  ///< operations
  std::function<void(Client&)> act;
  std::function<void(Client&)> finish;  ///< waits until the server has done what act sent
};

std::vector<Operation> operations() {
  const auto nothing = [](Client&) {};
  const auto count = [](Client& client) { client.store->getNumKeys(); };
  const auto raw_count = [](Client& client) {
    client.raw.send(client.num_keys);
    client.raw.receive(8);
  };
  return {
      {"set", 20000, 1, [](Client& client) { client.store->set(client.key, client.value); }, count},
      {"get", 700, 1, [](Client& client) { client.store->get(client.key); }, nothing},
      {"add", 1000, 1, [](Client& client) { client.store->add("counter", 1); }, nothing},
      {"check", 1000, 1, [](Client& client) { client.store->check({client.key}); }, nothing},
      {"multi_set of 16", 4000, kMultiKeys,
       [](Client& client) { client.store->multiSet(client.keys, client.values); }, count},
      {"multi_get of 16", 600, kMultiKeys,
       [](Client& client) { client.store->multiGet(client.keys); }, nothing},
      {"set pipelined", 3000, kBatch, [](Client& client) { client.raw.send(client.batch_of_sets); }, raw_count},
      {"get pipelined", 500, kBatch,
       [](Client& client) {
         client.raw.send(client.batch_of_gets);
         client.raw.receive(kBatch * (8 + client.value.size()));
       },
       nothing},
  };
}

void require(bool right, const char* what) {
  if (!right) throw std::runtime_error(fmt::format("wrong answer: {}", what));
}

void verify(Clients& clients) {
  for (const auto& client : clients) {
    c10d::TCPStore& store = *client->store;
    store.set(client->key, client->value);
    require(store.get(client->key) == client->value, "get");
    require(store.check({client->key}), "check");
    store.multiSet(client->keys, client->values);
    require(store.multiGet(client->keys) == client->values, "multi_get");
    client->raw.send(client->batch_of_gets);
    const std::string_view replies = client->raw.receive(kBatch * (8 + client->value.size()));
    require(std::equal(client->value.begin(), client->value.end(), replies.end() - client->value.size(),
                       [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }),
            "get pipelined");
  }
  const int64_t before = clients[0]->store->add("counter", 0);
  for (const auto& client : clients) client->store->add("counter", 1);
  require(clients[0]->store->add("counter", 0) == before + static_cast<int64_t>(clients.size()), "add");
}

/// /proc/self/task/<id> of the thread of that name.
std::filesystem::path task_of(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::ifstream(task.path() / "comm") >> comm;
    if (comm == name) return task.path();
  }
  throw std::runtime_error(fmt::format("there is no thread {}", name));
}

/// Processor time of a thread so far.
double cpu_us(const std::filesystem::path& task) {
  double nanoseconds = 0;
  std::ifstream(task / "schedstat") >> nanoseconds;
  return nanoseconds / 1000;
}

struct Side {
  Clients clients;
  std::filesystem::path task;  ///< of the server's thread
  std::vector<double> rates = {};
  std::vector<double> cpu = {};  ///< microseconds per operation
};

void measure(Side& side, const Operation& operation) {
  Clock::time_point began;
  std::barrier start(static_cast<ptrdiff_t>(side.clients.size()), [&]() noexcept { began = Clock::now(); });
  std::vector<std::thread> threads;
  const double cpu_before = cpu_us(side.task);
  for (const auto& client : side.clients) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (size_t i = 0; i < operation.calls; ++i) operation.act(*client);
      operation.finish(*client);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto count = static_cast<double>(operation.calls * operation.per_call * side.clients.size());
  side.rates.push_back(count / seconds_since(began));
  side.cpu.push_back((cpu_us(side.task) - cpu_before) / count);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Prints the line of `operation`. Its ratio is the median of the rounds'.
double compare(const Operation& operation, Side& ours, Side& theirs, size_t rounds) {
  measure(ours, operation);
  measure(theirs, operation);
  for (Side* side : {&ours, &theirs}) {
    side->rates.clear();
    side->cpu.clear();
  }
  std::vector<double> ratios;
  for (size_t round = 0; round < rounds; ++round) {
    const bool we_begin = round % 2 == 0;
    measure(we_begin ? ours : theirs, operation);
    measure(we_begin ? theirs : ours, operation);
    ratios.push_back(ours.rates.back() / theirs.rates.back());
  }
  std::sort(ratios.begin(), ratios.end());
  const double ratio = median(ratios);
  fmt::print("    {{\"operation\": \"{}\", \"lockstep_per_s\": {:.0f}, \"libtorch_per_s\": {:.0f}, \"ratio\": {:.3f}, "
             "\"quartiles\": [{:.3f}, {:.3f}], \"lockstep_cpu_us\": {:.3f}, \"libtorch_cpu_us\": {:.3f}}}",
             operation.name, median(ours.rates), median(theirs.rates), ratio, ratios[ratios.size() / 4],
             ratios[ratios.size() - 1 - ratios.size() / 4], median(ours.cpu), median(theirs.cpu));
  std::fflush(stdout);
  return ratio;
}

Clients connect(uint16_t port, size_t count, size_t value_bytes) {
  Clients clients;
  for (size_t i = 0; i < count; ++i) clients.push_back(std::make_unique<Client>(port, i, value_bytes));
  return clients;
}

void run(size_t num_clients, size_t value_bytes, size_t rounds, std::string_view only) {
  const OurServer our_server;
  const LibtorchServer their_server;
  Side ours{.clients = connect(our_server.port(), num_clients, value_bytes), .task = task_of(kOurThread)};
  Side theirs{.clients = connect(their_server.port(), num_clients, value_bytes), .task = task_of(kTheirThread)};
  verify(ours.clients);
  verify(theirs.clients);
  fmt::print("{{\"torch\": \"{}\", \"clients\": {}, \"value_bytes\": {}, \"rounds\": {}, \"processors\": {},\n"
             "  \"operations\": [",
             LOCKSTEP_TORCH_VERSION, num_clients, value_bytes, rounds, std::thread::hardware_concurrency());
  std::vector<double> ratios;
  for (const Operation& operation : operations()) {
    if (!only.empty() && operation.name != only) continue;
    fmt::print("{}\n", ratios.empty() ? "" : ",");
    ratios.push_back(compare(operation, ours, theirs, rounds));
  }
  if (ratios.empty()) throw std::runtime_error(fmt::format("there is no operation '{}'", only));
  fmt::print("\n  ],\n  \"lowest_ratio\": {:.3f}}}\n", *std::min_element(ratios.begin(), ratios.end()));
}

size_t argument(int argc, char** argv, int index, size_t otherwise) {
  const long value = argc > index ? std::atol(argv[index]) : static_cast<long>(otherwise);
  if (value < 1) throw std::runtime_error("usage: bench_store [CLIENTS [VALUE_BYTES [ROUNDS [OPERATION]]]]");
  return static_cast<size_t>(value);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argument(argc, argv, 1, 4), argument(argc, argv, 2, 64), argument(argc, argv, 3, 21), argc > 4 ? argv[4] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_store: {}\n", error.what());
    return 1;
  }
  return 0;
}
