#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/store_commands.h"
#include "lockstep/rendezvous/store_data.h"
#include "lockstep/rendezvous/store_session.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>

namespace lockstep::fuzz {
namespace {

using namespace rendezvous;
using Result = CommandParser::Result;

/// Small, so that short inputs reach them.
constexpr CommandLimits kLimits{.key_bytes = 32, .value_bytes = 200, .keys = 20, .command_bytes = 1500};
constexpr DataLimits kDataLimits{.total_bytes = 4000, .appended_bytes = 300};
constexpr size_t kRoom = 1000;
constexpr size_t kNumClients = 3;

struct Reading {
  std::vector<std::string> commands = {};  ///< encoded again
  std::string error = {};
};

Reading read_in_pieces(std::string_view stream, size_t piece) {
  Reading reading;
  CommandParser parser(kLimits);
  size_t taken = 0;  ///< of the present command
  std::string_view rest = stream;
  size_t consumed = 0;
  while (consumed < stream.size()) {
    rest = stream.substr(consumed, piece);
    const size_t before = rest.size();
    const Result result = parser.feed(rest);
    consumed += before - rest.size();
    taken += before - rest.size();
    LS_CHECK(parser.held_bytes() <= kLimits.command_bytes, "{} bytes are held", parser.held_bytes());
    if (result == Result::Malformed) {
      LS_CHECK(!parser.error().empty() && parser.held_bytes() == 0, "an error without words, or with bytes");
      reading.error = parser.error();
      return reading;
    }
    if (result == Result::NeedsBytes) {
      LS_CHECK(rest.empty(), "{} bytes were left", rest.size());
      continue;
    }
    std::string again = encode(parser.command());
    LS_CHECK(again == stream.substr(consumed - taken, taken), "{} is encoded differently",
             name(parser.command().op));
    reading.commands.push_back(std::move(again));
    taken = 0;
  }
  return reading;
}

void check_parser(std::string_view stream) {
  const Reading whole = read_in_pieces(stream, std::max<size_t>(stream.size(), 1));
  for (const size_t piece : {1, 3, 13}) {
    const Reading cut = read_in_pieces(stream, piece);
    LS_CHECK(cut.commands == whole.commands && cut.error == whole.error, "pieces of {} bytes read differently", piece);
  }
}

/// A store with a few clients, and the names of all queues there may be.
class Store {
 public:
  Store()
      : context_{.limits = kLimits, .data = StoreData(kDataLimits), .wake = [this](auto client) { woken(client); }} {
    for (size_t i = 0; i < kNumClients; ++i) connect(i);
  }

  void feed(size_t client, std::string_view bytes) {
    note_queues(client, bytes);
    std::string out;
    const Refusal refusal = clients_[client].session->feed(bytes, out, kRoom);
    LS_CHECK(out.size() <= kRoom + kNumClients, "{} bytes of replies", out.size());
    LS_CHECK(context_.data.bytes() <= kDataLimits.total_bytes, "{} bytes in the store", context_.data.bytes());
    LS_CHECK(clients_[client].session->held_bytes() <= kLimits.command_bytes, "a client holds too much");
    LS_CHECK(context_.data.num_waiting() <= kNumClients, "{} clients wait", context_.data.num_waiting());
    LS_CHECK(context_.data.take_woken().empty(), "somebody was not told");
    if (refusal) {
      LS_CHECK(!refusal->empty(), "a refusal without words");
      connect(client);
    }
  }

  /// When all clients have gone and everything was taken out, nothing may be counted.
  void check_empty() {
    for (Client& client : clients_) client.session.reset();
    StoreData& data = context_.data;
    LS_CHECK(data.num_waiting() == 0, "{} wait", data.num_waiting());
    while (data.num_keys() > 0) data.erase(std::string(data.list_keys().front()));
    for (const std::string& queue : queues_) {
      while (data.queue_pop(queue)) {
      }
    }
    LS_CHECK(data.bytes() == 0, "{} bytes are counted in an empty store", data.bytes());
  }

 private:
  struct Client {
    StoreData::ClientId id = 0;
    std::unique_ptr<StoreSession> session = {};
    std::unique_ptr<CommandParser> shadow = {};
  };

  void connect(size_t client) {
    Client& fresh = clients_[client];
    fresh.session.reset();
    fresh.id = next_id_++;
    fresh.session = std::make_unique<StoreSession>(context_, fresh.id);
    fresh.shadow = std::make_unique<CommandParser>(kLimits);
    std::string none;
    LS_CHECK(!fresh.session->feed(encode({.op = StoreOp::Validate, .number = kStoreMagic}), none, kRoom), "refused");
  }

  void note_queues(size_t client, std::string_view bytes) {
    CommandParser& parser = *clients_[client].shadow;
    while (!bytes.empty() && parser.feed(bytes) == Result::Command) {
      if (parser.command().op == StoreOp::QueuePush) queues_.insert(parser.command().keys[0]);
    }
  }

  void woken(StoreData::ClientId id) {
    LS_CHECK(std::any_of(clients_.begin(), clients_.end(), [&](const Client& client) { return client.id == id; }),
             "client {} has gone and was woken", id);
    LS_CHECK(!context_.data.is_waiting(id), "client {} was woken and waits", id);
  }

  StoreContext context_;
  StoreData::ClientId next_id_ = 1;
  std::array<Client, kNumClients> clients_;
  std::set<std::string> queues_;
};

void check_store(std::string_view records) {
  Store store;
  while (records.size() >= 2) {
    const size_t client = static_cast<uint8_t>(records[0]) % kNumClients;
    const size_t length = std::min<size_t>(static_cast<uint8_t>(records[1]), records.size() - 2);
    store.feed(client, records.substr(2, length));
    records.remove_prefix(2 + length);
  }
  store.check_empty();
}

std::string record(size_t client, const StoreCommand& command) {
  const std::string bytes = encode(command);
  return std::string{static_cast<char>(client), static_cast<char>(bytes.size())} + bytes;
}

}  // namespace

std::vector<std::string> store_commands_seeds() {
  using enum StoreOp;
  const std::vector<StoreCommand> commands{
      {.op = Validate, .number = kStoreMagic},
      {.op = Set, .keys = {"/a"}, .values = {"value"}},
      {.op = Set, .keys = {"/n"}, .values = {"41"}},
      {.op = CompareSet, .keys = {"/a"}, .values = {"value", "other"}},
      {.op = CompareSet, .keys = {"/c"}, .values = {"", "first"}},
      {.op = Get, .keys = {"/a"}},
      {.op = Add, .keys = {"/n"}, .number = 1},
      {.op = Check, .keys = {"/a", "/q"}},
      {.op = Wait, .keys = {"/a", "/later"}},
      {.op = NumKeys},
      {.op = Delete, .keys = {"/a"}},
      {.op = Append, .keys = {"/a"}, .values = {"tail"}},
      {.op = MultiGet, .keys = {"/a", "/n"}},
      {.op = MultiSet, .keys = {"/a", "/later"}, .values = {"1", ""}},
      {.op = CancelWait},
      {.op = Ping, .number = 4711},
      {.op = QueuePush, .keys = {"/q"}, .values = {"item"}},
      {.op = QueuePop, .keys = {"/q"}},
      {.op = QueueLength, .keys = {"/q"}},
      {.op = ListKeys},
      {.op = Barrier, .keys = {"/b"}, .number = 2},
  };
  std::vector<std::string> seeds;
  std::string all(1, '\0');
  std::string talk(1, '\1');
  size_t client = 0;
  for (const StoreCommand& command : commands) {
    const std::string bytes = encode(command);
    seeds.push_back(std::string(1, '\0') + bytes);
    all += bytes;
    if (command.op != Validate) talk += record(client++ % kNumClients, command);
  }
  seeds.push_back(all);
  seeds.push_back(talk);
  const StoreCommand wait{.op = Wait, .keys = {"/x", "/y"}};
  const StoreCommand barrier{.op = Barrier, .keys = {"/b"}, .number = 3};
  const StoreCommand push{.op = QueuePush, .keys = {"/q"}, .values = {"item"}};
  const StoreCommand queue{.op = Wait, .keys = {"/q"}};
  const StoreCommand make{.op = MultiSet, .keys = {"/x", "/y"}, .values = {"1", "2"}};
  const StoreCommand cancel{.op = CancelWait};
  const StoreCommand pop{.op = QueuePop, .keys = {"/q"}};
  seeds.push_back("\1" + record(0, wait) + record(1, wait) + record(2, make) + record(0, cancel));
  seeds.push_back("\1" + record(0, barrier) + record(1, barrier) + record(1, cancel) + record(1, barrier) +
                  record(2, barrier));
  seeds.push_back("\1" + record(0, queue) + record(1, queue) + record(2, push) + record(0, pop) + record(2, push) +
                  record(1, pop));
  return seeds;
}

}  // namespace lockstep::fuzz

int fuzz_store_commands(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (static_cast<uint8_t>(input[0]) % 2 == 0) {
    lockstep::fuzz::check_parser(input.substr(1));
  } else {
    lockstep::fuzz::check_store(input.substr(1));
  }
  return 0;
}
