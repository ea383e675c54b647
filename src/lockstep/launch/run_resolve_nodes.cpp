// How many nodes, and where they meet.
#include "lockstep/launch/rdzv_settings.h"
#include "lockstep/launch/run_resolve_parts.h"
#include "lockstep/net/address.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::launch::detail {

namespace {

constexpr uint16_t kPort = 29400;  // c10d, where the endpoint has none

constexpr std::string_view kOneNodeId =
    "a job of one node gets a new name each time, as with torchrun; --rdzv_backend c10d would keep it";

bool shares_the_store(const Resolving& run) { return run.variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1"; }

void read_rdzv_conf(Resolving& run) {
  static constexpr std::array<std::string_view, 4> kWithoutEffect = {"heartbeat_timeout", "close_timeout",
                                                                     "cas_backoff_max_seconds", "use_libuv"};
  const std::string& text = run.options.rdzv_conf;
  RdzvConf conf = parse_rdzv_conf(text);
  for (const std::string& entry : conf.malformed) {
    run.refuse("rdzv_conf", text, fmt::format("\"{}\" is not KEY=VALUE.", entry));
  }
  for (const std::string& key : conf.repeated) {
    run.notes.push_back(fmt::format("{}: {} stands in it twice; the last value, {}, holds, as with torchrun.",
                                    run.shown("rdzv_conf", text), key, conf.values.at(key)));
  }
  for (const auto& [key, value] : conf.values) {
    if (key == "store_type" && value != "tcp") {
      run.refuse("rdzv_conf", text, "only the store_type tcp exists here. Leave store_type out.");
    }
    if (std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) != kWithoutEffect.end()) {
      run.note("rdzv_conf", fmt::format("{}={}", key, value), "the rendezvous works without it");
    }
  }
  run.spec.rdzv_conf = std::move(conf.values);
}

constexpr std::string_view kNoPortForOthers =
    "port 0 means any free one, which the other nodes could not know. Choose one, such as 29500.";

/// `default_port`: where the text has none; absent: it must have one.
void read_endpoint(Resolving& run, std::optional<uint16_t> default_port) {
  const std::string& text = run.options.rdzv_endpoint;
  const net::Endpoint::Read read = net::Endpoint::read(text, default_port);
  if (!read.endpoint) return run.refuse("rdzv_endpoint", text, read.problem);
  run.spec.endpoint_host = read.endpoint->host;
  run.spec.endpoint_port = read.endpoint->port;
  // A job that may begin with one node can do without the others.
  const int needed = run.spec.meeting == Meeting::Static ? run.spec.max_nodes : run.spec.min_nodes;
  if (read.endpoint->port == 0 && needed > 1) run.refuse("rdzv_endpoint", text, kNoPortForOthers);
}

/// An option whose value is a host without a port.
std::string read_host(Resolving& run, std::string_view key, const std::string& text) {
  const net::Endpoint::Read read = net::Endpoint::read(text, 0);
  if (read.endpoint && !read.has_port) return read.endpoint->host;
  run.refuse(key, text, "must be a host name or a numeric address, without a port: node1, 10.0.0.1, fd00::1.");
  return text;
}

void meet_statically(Resolving& run) {
  RunSpec& spec = run.spec;
  spec.run_id = run.options.rdzv_id;
  if (run.options.rdzv_endpoint.empty()) {
    spec.endpoint_host = read_host(run, "master_addr", run.options.master_addr);
    spec.endpoint_port = static_cast<uint16_t>(run.options.master_port.value_or(29500));
    if (spec.endpoint_port == 0 && spec.max_nodes > 1) run.refuse("master_port", "0", kNoPortForOthers);
  } else {
    read_endpoint(run, std::nullopt);
  }
  if (spec.node_rank && *spec.node_rank >= spec.max_nodes) {
    run.refuse("node_rank", std::to_string(*spec.node_rank),
               fmt::format("must be below the number of nodes, {}.", spec.max_nodes));
  }
}

void meet_on_one_node(Resolving& run) {
  RunSpec& spec = run.spec;
  spec.meeting = Meeting::OneNode;
  const bool is_static = run.options.rdzv_backend == "static" && !run.options.standalone;
  if (is_static && (!run.options.rdzv_endpoint.empty() || run.options.master_port)) return meet_statically(run);
  // It is not used, but what it says must not be nonsense.
  if (!run.options.rdzv_endpoint.empty()) read_endpoint(run, kPort);
  spec.use_agent_store = shares_the_store(run);
  spec.endpoint_host = spec.local_addr.empty() ? "localhost" : spec.local_addr;
  spec.endpoint_port = 0;
  spec.run_id = run.machine.fresh_id;
  if (!run.options.standalone && !is_static) {
    spec.run_id = run.options.rdzv_id;
  } else if (run.parsed.is_given("rdzv_id")) {
    run.note("rdzv_id", run.options.rdzv_id, kOneNodeId);
  }
}

/// Many believe that torchrun reads these; where nothing else is said, they are better than a wrong default.
void take_the_callers_variables(Resolving& run) {
  const auto say = [&](std::string_view name, std::string_view value, std::string_view flag) {
    run.notes.push_back(fmt::format("{}={} is taken from the environment (torchrun would ignore it); --{} goes before "
                                    "it.", name, value, flag));
  };
  if (const auto text = run.variable("MASTER_ADDR"); text && !run.parsed.is_given("master_addr")) {
    run.options.master_addr = *text;
    say("MASTER_ADDR", *text, "master_addr");
  }
  const auto number_in = [&](const char* name) {
    const auto text = run.variable(name);
    return text ? parse_int(*text) : std::nullopt;
  };
  if (const auto port = number_in("MASTER_PORT");
      port && *port >= 0 && *port <= 65535 && !run.parsed.is_given("master_port")) {
    run.options.master_port = *port;
    say("MASTER_PORT", std::to_string(*port), "master_port");
  }
  if (const auto rank = number_in("NODE_RANK"); rank && *rank >= 0 && !run.spec.node_rank) {
    run.spec.node_rank = *rank;
    say("NODE_RANK", std::to_string(*rank), "node_rank");
  }
}

/// Where neither an option nor the environment has named the host.
void note_default_address(Resolving& run) {
  const bool is_named = !run.options.rdzv_endpoint.empty() || run.parsed.is_given("master_addr") ||
                        run.variable("MASTER_ADDR").has_value();
  if (is_named) return;
  run.notes.push_back(fmt::format("there is no --rdzv_endpoint: the nodes meet at {}:{} (torchrun's default), which works "
                                  "only when all of them are on this host. Give --rdzv_endpoint HOST:PORT, the host of node "
                                  "rank 0, on every node.", run.spec.endpoint_host, run.spec.endpoint_port));
}

void meet_on_several_nodes(Resolving& run) {
  RunSpec& spec = run.spec;
  if (run.options.rdzv_backend == "static") {
    spec.meeting = Meeting::Static;
    if (run.options.rdzv_endpoint.empty()) take_the_callers_variables(run);
    meet_statically(run);
    return note_default_address(run);
  }
  spec.meeting = Meeting::C10d;
  spec.use_agent_store = shares_the_store(run);
  spec.run_id = run.options.rdzv_id;
  if (!run.options.rdzv_endpoint.empty()) return read_endpoint(run, kPort);
  spec.endpoint_host = "localhost";
  spec.endpoint_port = kPort;
  run.notes.emplace_back("there is no --rdzv_endpoint: the nodes meet at localhost:29400, which works only when all of "
                         "them are on this host.");
}

}  // namespace

void resolve_nodes(Resolving& run) {
  RunSpec& spec = run.spec;
  const std::string& text = run.options.nnodes;
  const auto parts = split(text, ':');
  spec.min_nodes = parse_int(parts.front()).value_or(0);
  spec.max_nodes = parse_int(parts.back()).value_or(0);
  if (spec.min_nodes < 1 || spec.min_nodes > spec.max_nodes) {
    run.refuse("nnodes", text, "must be a number, or MIN:MAX with 1 <= MIN <= MAX.");
  }
  if (run.options.standalone && spec.max_nodes > 1) {
    run.refuse("nnodes", text, "--standalone means one node: others could never come. Leave one of them out.");
  }
  if (!spec.local_addr.empty()) spec.local_addr = read_host(run, "local_addr", spec.local_addr);
  if (run.parsed.is_given("node_rank")) spec.node_rank = static_cast<int>(run.options.node_rank);
  read_rdzv_conf(run);
  if (spec.max_nodes == 1) meet_on_one_node(run);
  else meet_on_several_nodes(run);
}

}  // namespace lockstep::launch::detail
