#include "lockstep/library/process.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/comm/recorded.h"
#include "lockstep/library/dataset_impl.h"
#include "lockstep/net/address.h"
#include "lockstep/net/resolve.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <chrono>
#include <cerrno>
#include <new>
#include <system_error>

#include <sys/socket.h>

namespace lockstep::library {
namespace {

constexpr Milliseconds kLookUp{10'000};

/// Destroyed with the process's static objects, unless distributed::destroy() came first.
std::unique_ptr<Group>& the_group() {
  static std::unique_ptr<Group> group;
  return group;
}

std::string value_of(const launch::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

int whole_number(const launch::Environment& environment, const std::string& name, int least, int most) {
  const std::string text = value_of(environment, name);
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error::usage("environment variable {}={}: must be a whole number from {} to {}.", name, text, least, most);
  }
  return value;
}

/// The address that this node reaches `to` from: others reach it there. No packet is sent.
std::string own_address(const net::Address& to) {
  const UniqueFd fd(::socket(to.is_v6() ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto raw = to.raw();
  if (fd.get() < 0 || ::connect(fd.get(), raw.get(), raw.size) != 0) {
    throw Error::environment("MASTER_ADDR = {}: this machine has no way to it ({}). Check the network.", to.host(),
                             std::generic_category().message(errno));
  }
  return net::Address::local_of(fd.get()).host();
}

}  // namespace

launch::WorkerEnvironment parse_process_environment(launch::Environment environment) {
  for (const char* name : {"LOCKSTEP_CONTROL_FD", "LOCKSTEP_RUN_FOLDER", "LOCKSTEP_TTY_COLUMNS", "LOCKSTEP_NODE_ADDR"}) {
    environment.erase(name);
  }
  const bool knows_local = !value_of(environment, "LOCAL_RANK").empty() && value_of(environment, "LOCAL_WORLD_SIZE").empty();
  int local_rank = 0;
  if (knows_local) {
    local_rank = whole_number(environment, "LOCAL_RANK", 0, 1 << 20);
    environment.erase("LOCAL_RANK");
  }
  // On its own a launcher's leftovers mean nothing.
  if (value_of(environment, "RANK").empty() && value_of(environment, "WORLD_SIZE").empty()) {
    environment.erase("LOCAL_RANK");
    environment.erase("LOCAL_WORLD_SIZE");
  }
  launch::WorkerEnvironment parsed = launch::parse_worker_environment(environment);
  if (knows_local) parsed.local_rank = local_rank;
  if (const std::string restarts = value_of(environment, "TORCHELASTIC_RESTART_COUNT"); !restarts.empty()) {
    parsed.restart_count = whole_number(environment, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 30);
  }
  return parsed;
}

launch::WorkerEnvironment environment_of_process() {
  launch::WorkerEnvironment parsed = parse_process_environment(launch::current_environment());
  if (parsed.world_rank == 0) parsed.terminal_columns = launch::terminal_columns(2);
  return parsed;
}

comm::GlooOptions meeting_of(const launch::Environment& environment, const launch::WorkerEnvironment& parsed,
                             const distributed::InitOptions& options) {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (!value_of(environment, name).empty()) continue;
    throw Error::usage("environment variable {} is not set, so {} processes cannot find each other. Start them with "
                       "`lockstep run` or torchrun, or set MASTER_ADDR and MASTER_PORT to where rank 0 can listen.",
                       name, parsed.world_size);
  }
  comm::GlooOptions gloo;
  gloo.rank = parsed.world_rank;
  gloo.size = parsed.world_size;
  gloo.master_addr = value_of(environment, "MASTER_ADDR");
  gloo.master_port = static_cast<uint16_t>(whole_number(environment, "MASTER_PORT", 1, 65535));
  gloo.opens_store = parsed.world_rank == 0 && value_of(environment, "TORCHELASTIC_USE_AGENT_STORE") != "True";
  gloo.restart_count = parsed.restart_count;
  gloo.join_timeout = Milliseconds(static_cast<int64_t>(1e3 * options.join_timeout));
  gloo.timeout = Milliseconds(static_cast<int64_t>(1e3 * options.timeout));
  const net::Resolved found = net::resolve({gloo.master_addr, gloo.master_port}, Deadline::in(kLookUp));
  if (found.outcome != net::Resolved::Outcome::Found || found.addresses.empty()) {
    throw Error::environment("MASTER_ADDR = {}: {}. Give an address, or a name that all nodes know.", gloo.master_addr,
                             found.problem);
  }
  gloo.own_addr = own_address(found.addresses.front());
  return gloo;
}

Group* group_of_process() { return the_group().get(); }

Group& join_group(const distributed::InitOptions& options) {
  if (the_group()) return *the_group();
  if (options.backend != "gloo") {
    const bool is_known = options.backend == "nccl" || options.backend == "mpi" || options.backend == "ucc";
    throw Error::usage("backend = '{}': {}. Use gloo.", options.backend,
                       is_known ? "is not there yet, as lockstep computes on CPUs so far" : "is no backend");
  }
  if (!(options.timeout >= 0.001 && options.timeout <= 1e9) || !(options.join_timeout >= 0.001 && options.join_timeout <= 1e9)) {
    throw Error::usage("timeout = {}, join_timeout = {}: must be seconds above 0.", options.timeout, options.join_timeout);
  }
  auto group = std::make_unique<Group>();
  group->environment = environment_of_process();
  if (group->environment.world_size == 1) {
    group->comm = comm::make_self();
  } else {
    with_our_errors([&] {
      const comm::GlooOptions meeting = meeting_of(launch::current_environment(), group->environment, options);
      group->comm = comm::make_recorded(comm::make_processes(meeting, comm::carrier_of_environment()));
    });
  }
  the_group() = std::move(group);
  return *the_group();
}

void leave_group() { the_group().reset(); }

void with_our_errors(const std::function<void()>& work) {
  constexpr std::string_view kLessMemory = "Set gradient_checkpointing = true, a smaller grain_tokens, or use more processes";
  try {
    work();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("alloc") != std::string::npos) throw Error::environment("out of memory: {}. {}.", text, kLessMemory);
    throw Error::internal("libtorch: {}", text);
  } catch (const std::bad_alloc&) {
    throw Error::environment("out of memory. {}.", kLessMemory);
  } catch (const fs::filesystem_error& problem) {
    throw Error::environment("{}. Check the disk and the path.", problem.what());
  }
}

}  // namespace lockstep::library

namespace lockstep {

int threads_of_process(std::optional<int64_t> wish) {
  const launch::WorkerEnvironment environment = library::environment_of_process();
  std::optional<int> given = environment.num_threads;
  if (wish) given = static_cast<int>(*wish);
  return launch::threads_per_worker(given, available_cores(), environment.local_world_size);
}

}  // namespace lockstep
