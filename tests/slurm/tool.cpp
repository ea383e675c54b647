// What runs inside the jobs of the cluster tests: lockstep's SLURM parts, one subcommand each.
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/launch/doctor.h"
#include "lockstep/launch/slurm_command.h"
#include "lockstep/launch/slurm_conf.h"
#include "lockstep/launch/slurm_fill_in.h"
#include "lockstep/launch/slurm_token.h"

#include <fmt/ranges.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::launch;
using Words = std::vector<std::string>;

/// One line: everything that was read and derived.
int print_context(const Words& argv) {
  const SlurmContext context = read_slurm(current_environment());
  if (context.step) {
    const SlurmStep& step = *context.step;
    const SlurmFillIn derived = fill_in(step, {});
    fmt::print("step node={} of={} hosts={} run={} endpoint={}:{} cpus={} gpus={} "
               "dir={}\n", step.node_id, step.num_nodes,
               fmt::join(step.hosts, "+"), step.run_id(), derived.endpoint_host.value_or("-"),
               derived.endpoint_port.value_or(0), step.job.cpus_on_node.value_or(-1), derived.gpus_per_node.value_or(0),
               step.job.submit_dir.string());
  } else if (context.batch) {
    const auto advice = batch_advice(*context.batch, {}, argv);
    fmt::print("batch nodes={} job={} interactive={}\n{}\n", context.batch->num_nodes, context.batch->job.job_id,
               context.batch->interactive, advice ? advice->text : "no advice");
  } else {
    fmt::print("no slurm\n");
  }
  return 0;
}

std::unique_ptr<Munge> open_munge(bool required) {
  std::string why;
  auto munge = Munge::open(read_slurm_conf(current_environment()).munge_socket, why);
  if (munge == nullptr && required) throw Error::environment("munge does not work: {}", why);
  return munge;
}

/// As agents do: node 0 writes, the others wait.
int share_token(bool with_munge) {
  const SlurmStep step = *read_slurm(current_environment()).step;
  const auto munge = with_munge ? open_munge(true) : nullptr;
  const StepSecretPlace place = step_secret_place(step);
  const StepSecret secret =
      step.node_id == 0 ? publish_step_secret(place, munge.get())
                        : await_step_secret(place, munge.get(), Deadline::in(Milliseconds(20'000)),
                                            [](const std::string& line) { fmt::print(stderr, "{}\n", line); },
                                            [](Milliseconds span) {
                                              std::this_thread::sleep_for(span);
                                              return true;
                                            })
                              .value();
  fmt::print("token {} {} {}\n", secret.secret.size(), to_hex(hash_bytes(std::as_bytes(std::span(secret.secret)))),
             secret.how);
  return 0;
}

int remove_token() {
  remove_step_secret(step_secret_place(*read_slurm(current_environment()).step));
  return 0;
}

int unseal(const std::string& credential) {
  std::string why;
  const auto text = open_munge(true)->unseal(credential, why);
  fmt::print("{}\n", text ? "opened " + *text : "refused " + why);
  return 0;
}

int run(const Words& argv) {
  const std::string command = argv.size() > 1 ? argv[1] : "";
  const Words args(argv.begin() + std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(argv.size())), argv.end());
  if (command == "context") return print_context(argv);
  if (command == "token") return share_token(args.empty());
  if (command == "remove_token") return remove_token();
  if (command == "seal") return fmt::print("{}\n", open_munge(true)->seal("words of mine")), 0;
  if (command == "unseal") return unseal(args.at(0));
  if (command == "slurm") return run_slurm_command(args);
  if (command == "doctor") return run_doctor_command(args);
  throw Error::usage("no command {}", command);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = run(Words(argv, argv + argc));
    std::fflush(stdout);
    return code;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "slurm_tool: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& problem) {
    fmt::print(stderr, "slurm_tool: {}\n", problem.what());
    return 70;
  }
}
