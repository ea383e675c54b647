// lockstep run: any program on one node or many, the role of torchrun.
#include "lockstep/apps/commands.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/job_plan.h"
#include "lockstep/launch/node_run.h"
#include "lockstep/launch/run_command_line.h"
#include "lockstep/launch/torchrun_environment.h"
#include "lockstep/launch/worker_store.h"
#include "lockstep/options/environment.h"

#include <fmt/format.h>

namespace lockstep::apps {
namespace {

void print_words(const launch::JobPlan& plan) {
  for (const std::string& note : plan.notes) fmt::print(stderr, "lockstep: note: {}\n", note);
  for (const std::string& warning : plan.warnings) fmt::print(stderr, "lockstep: warning: {}\n", warning);
}

int run_on_nodes(launch::JobPlan& plan) {
  launch::NodeRun job(plan.spec);
  const std::string note = launch::omp_note(plan.spec);
  if (!note.empty() && plan.speaks_for_all()) job.say("note: " + note);
  return launch::run_plan_on_nodes(plan, job);
}

}  // namespace

int run_run(const Invocation& invocation) {
  launch::keep_standard_descriptors_open();
  const launch::Environment environment = launch::current_environment();
  launch::ParsedRun parsed =
      launch::parse_run(invocation.args, environment, options::Environment::of_this_process().page);
  if (parsed.text) {
    fmt::print("{}", *parsed.text);
    return 0;
  }
  for (const std::string& note : parsed.notes) fmt::print(stderr, "lockstep: note: {}\n", note);
  const std::vector<std::string> command = launch::resolve_program(parsed, environment);
  launch::JobPlan plan =
      launch::plan_job(std::move(parsed), environment, launch::this_machine(environment), invocation.argv);
  plan.spec.command = command;
  print_words(plan);
  if (plan.spec.max_nodes > 1) return launch::run_or_tell_the_others(plan, [&] { return run_on_nodes(plan); });
  return launch::run_single_node(plan.spec, launch::open_worker_store);
}

}  // namespace lockstep::apps
