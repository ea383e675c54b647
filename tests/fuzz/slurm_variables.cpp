#include "fuzz/slurm_targets.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/slurm_conf.h"
#include "lockstep/launch/slurm_fill_in.h"

#include <cstdlib>
#include <string>
#include <string_view>

namespace {

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
  if (context.step && context.batch) std::abort();
  if (!context.step) return;
  const SlurmStep& step = *context.step;
  const bool holds = step.num_nodes >= 1 && step.node_id >= 0 && step.node_id < step.num_nodes &&
                     step.hosts.size() == static_cast<size_t>(step.num_nodes) &&
                     step.tasks_per_node.size() == step.hosts.size() && !step.run_id().empty();
  if (!holds) std::abort();
  const SlurmFillIn derived = fill_in(step, {});
  if (derived.node_rank != step.node_id || derived.num_nodes != step.num_nodes) std::abort();
  if (derived.endpoint_port && (*derived.endpoint_port < 20'000 || *derived.endpoint_port > 29'999)) std::abort();
}

}  // namespace

int fuzz_slurm_variables(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  parse_slurm_conf(text);
  try {
    check(read_slurm(read_environment(text)));
  } catch (const lockstep::Error& error) {
    if (error.kind() != lockstep::ErrorKind::Usage) std::abort();
  }
  return 0;
}
