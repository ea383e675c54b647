#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/slurm_conf.h"
#include "lockstep/launch/slurm_fill_in.h"

#include <string>
#include <string_view>

namespace {

using namespace lockstep;
using namespace lockstep::launch;

Environment read_environment(std::string_view text) {
  Environment environment;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos) {
      environment.insert_or_assign(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
    }
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
  }
  return environment;
}

void check(const SlurmContext& context) {
  LS_CHECK(!context.step || !context.batch, "a step and none");
  if (!context.step) return;
  const SlurmStep& step = *context.step;
  LS_CHECK(step.num_nodes >= 1 && step.node_id >= 0 && step.node_id < step.num_nodes, "node {} of {}", step.node_id,
           step.num_nodes);
  const auto num_nodes = static_cast<size_t>(step.num_nodes);
  LS_CHECK(step.hosts.size() == num_nodes && step.tasks_per_node.size() == num_nodes, "{} hosts", step.hosts.size());
  LS_CHECK(!step.run_id().empty(), "no run id");
  const SlurmFillIn derived = fill_in(step, {});
  if (step.num_nodes == 1) {
    LS_CHECK(!derived.node_rank && !derived.num_nodes && !derived.endpoint_host, "a job of one node was told more");
    return;
  }
  LS_CHECK(derived.node_rank == step.node_id && derived.num_nodes == step.num_nodes, "rank or nodes differ");
  const int port = derived.endpoint_port.value_or(20'000);
  LS_CHECK(port >= 20'000 && port <= 29'999, "port {}", port);
}

void check(const SlurmConf& conf) {
  LS_CHECK(conf.kill_wait.value_or(Milliseconds(0)) >= Milliseconds(0), "KillWait of {} ms", conf.kill_wait->count());
  const Milliseconds grace = slurm_grace(Milliseconds(30'000), conf.kill_wait.value_or(Milliseconds(30'000)));
  LS_CHECK(grace >= Milliseconds(0) && grace <= Milliseconds(30'000), "{} ms", grace.count());
}

}  // namespace

int fuzz_slurm_variables(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(parse_slurm_conf(text));
  try {
    check(read_slurm(read_environment(text)));
  } catch (const lockstep::Error& error) {
    if (error.kind() != lockstep::ErrorKind::Usage) throw;
  }
  return 0;
}
