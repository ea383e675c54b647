#include "lockstep/launch/job_plan.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/absent_host.h"
#include "lockstep/launch/limits.h"
#include "lockstep/launch/rdzv_settings.h"
#include "lockstep/launch/slurm_conf.h"
#include "lockstep/launch/slurm_fill_in.h"
#include "lockstep/launch/slurm_token.h"
#include "lockstep/net/address.h"

#include <fmt/ranges.h>

#include <cstring>
#include <memory>
#include <utility>

namespace lockstep::launch {
namespace {

using options::Origin;

constexpr const char* kStepsRank = "SLURM_NODEID";

/// What the user said of the nodes, whatever the words.
SlurmGiven given_to(const ParsedRun& parsed) {
  const RunOptions& options = parsed.options;
  SlurmGiven given;
  given.standalone = options.standalone;
  if (parsed.is_given("nnodes")) {
    given.max_nodes = std::atoi(options.nnodes.substr(options.nnodes.find(':') + 1).c_str());
  }
  if (parsed.is_given("node_rank")) given.node_rank = static_cast<int>(options.node_rank);
  if (!options.rdzv_endpoint.empty()) {
    given.endpoint_host = net::Endpoint::parse(options.rdzv_endpoint, 0, "--rdzv_endpoint").host;
  } else if (parsed.is_given("master_addr")) {
    given.endpoint_host = options.master_addr;
  }
  if (options.master_port) given.endpoint_port = static_cast<int>(*options.master_port);
  if (parsed.is_given("rdzv_id")) given.run_id = options.rdzv_id;
  if (parsed.is_given("nproc_per_node")) given.nproc = std::atoi(options.nproc_per_node.c_str());
  return given;
}

void set_origin(ParsedRun& parsed, const std::string& key, const std::string& variable) {
  parsed.origins[key] = Origin{.kind = Origin::Kind::File, .file = variable, .line = 0};
}

/// Takes over what SLURM fills in as if it had been written.
void take_over(const SlurmFillIn& fill, ParsedRun& parsed) {
  RunOptions& options = parsed.options;
  if (fill.num_nodes) {
    options.nnodes = std::to_string(*fill.num_nodes);
    set_origin(parsed, "nnodes", "SLURM_STEP_NUM_NODES");
  }
  if (fill.node_rank) {
    options.node_rank = *fill.node_rank;
    set_origin(parsed, "node_rank", "SLURM_NODEID");
  }
  if (fill.endpoint_host) {
    const auto port = static_cast<uint16_t>(fill.endpoint_port.value_or(0));
    options.rdzv_endpoint = net::Endpoint{*fill.endpoint_host, port}.text();
    set_origin(parsed, "rdzv_endpoint", "SLURM_STEP_NODELIST");
    // Where nobody has chosen a backend: ranks come from SLURM, and the host may start last.
    if (!parsed.is_given("rdzv_backend")) options.rdzv_backend = "c10d";
  }
  if (fill.run_id) {
    options.rdzv_id = *fill.run_id;
    set_origin(parsed, "rdzv_id", "SLURM_JOB_ID");
  }
  if (fill.gpus_per_node && !parsed.is_given("nproc_per_node")) {
    options.nproc_per_node = std::to_string(*fill.gpus_per_node);
    set_origin(parsed, "nproc_per_node", "SLURM_GPUS_ON_NODE");
  }
}

void read_batch(const SlurmBatch& batch, const ParsedRun& parsed, std::span<const std::string> argv, JobPlan& plan) {
  const auto advice = batch_advice(batch, given_to(parsed), argv);
  if (!advice) return;
  if (advice->refuse) throw Error(ErrorKind::Usage, advice->text);
  plan.warnings.push_back(advice->text);
}

Milliseconds kill_wait_of(const Environment& environment) {
  return read_slurm_conf(environment).kill_wait.value_or(Milliseconds(30'000));
}

/// "SLURM: 2 nodes n0, n1 (...); run id 7.0 (...)": one line, as all of it is known at once.
std::string slurm_note(const std::vector<std::string>& lines) {
  return fmt::format("SLURM: {}", fmt::join(lines, "; "));
}

/// A batch script that expands $SLURM_NODEID gives all nodes rank 0: node 1 says it for all. Other ranks that do not
/// hold may be this node's alone.
bool should_tell_rank(const SlurmStep& step, const SlurmGiven& given) {
  return given.node_rank.value_or(0) != 0 || step.node_id <= 1;
}

void read_step_plan(const SlurmStep& step, ParsedRun& parsed, JobPlan& plan) {
  const SlurmGiven given = given_to(parsed);
  const SlurmFillIn fill = fill_in(step, given);
  plan.step = step;
  if (!fill.lines.empty()) plan.notes.push_back(slurm_note(fill.lines));
  if (plan.speaks_for_all()) plan.warnings = fill.warnings;
  if (fill.rank_warning && should_tell_rank(step, given)) plan.warnings.push_back(*fill.rank_warning);
  take_over(fill, parsed);
  if (!fill.node_rank) return;
  plan.meeting.rank_origin = kStepsRank;
  plan.meeting.is_host = fill.is_endpoint_here;
}

/// `of_step`: what read_step_plan() knows.
MeetingSpec complete_meeting(const RunSpec& spec, const MeetingSpec& of_step) {
  MeetingSpec meeting = make_meeting(spec);
  meeting.rank_origin = of_step.rank_origin;
  // No look-up is needed. Under static, rank 0 hosts.
  if (spec.meeting == Meeting::C10d && !meeting.is_host) meeting.is_host = of_step.is_host;
  return meeting;
}

/// The secret that the nodes of a step hand to each other through a file; nothing where a token was given, or where the
/// job is not the step.
class SecretOfStep {
 public:
  /// Without a job no node waits for the secret of another.
  SecretOfStep(JobPlan& plan, NodeJob* job) {
    const bool is_whole_step = plan.step && plan.meeting.rank_origin == kStepsRank;
    if (plan.meeting.token || !is_whole_step) return;
    place_ = step_secret_place(*plan.step);
    std::string why;
    const SlurmConf conf = read_slurm_conf(plan.spec.environment);
    const std::unique_ptr<Munge> munge = Munge::open(conf.munge_socket, why);
    std::optional<StepSecret> secret;
    if (plan.step->node_id == 0) {
      secret = write(munge.get());
    } else if (job != nullptr) {
      secret = await(munge.get(), plan, *job);
    }
    if (secret) plan.meeting.token = net::Token::from_text(secret->secret, secret->how);
  }
  ~SecretOfStep() { remove(); }
  SecretOfStep(const SecretOfStep&) = delete;
  SecretOfStep& operator=(const SecretOfStep&) = delete;

  void remove() {
    if (std::exchange(is_mine_, false)) remove_step_secret(place_);
  }

 private:
  StepSecret write(const Munge* munge) {
    StepSecret secret = publish_step_secret(place_, munge);
    is_mine_ = true;
    return secret;
  }

  std::optional<StepSecret> await(const Munge* munge, const JobPlan& plan, NodeJob& job) const {
    return await_step_secret(
        place_, munge, Deadline::in(plan.meeting.membership.join_timeout),
        [&](const std::string& line) { job.say(line); },
        [&](Milliseconds span) {
          job.step(span, nullptr);
          return job.interrupted_by() == 0;
        });
  }

  StepSecretPlace place_;
  bool is_mine_ = false;
};

/// Best effort: what this node has failed for is reported in any case.
void tell_the_others(JobPlan& plan, const Error& error) {
  plan.others_know = true;
  try {
    if (!plan.meeting.token) plan.meeting.token = find_token(read_rdzv_settings(plan.spec.rdzv_conf), plan.spec.environment);
    const SecretOfStep secret(plan, nullptr);
    tell_absence(plan.spec, plan.meeting, error, [](const std::string& line) { fmt::print(stderr, "lockstep: {}\n", line); });
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

JobPlan plan_job(ParsedRun parsed, const Environment& environment, const RunMachine& machine,
                 std::span<const std::string> argv) {
  JobPlan plan;
  const SlurmContext slurm = read_slurm(environment);
  if (slurm.step) read_step_plan(*slurm.step, parsed, plan);
  if (slurm.batch) read_batch(*slurm.batch, parsed, argv, plan);
  options::Words notes;
  plan.spec = make_run_spec(parsed, environment, machine, notes);
  plan.notes.insert(plan.notes.begin(), notes.begin(), notes.end());
  if (slurm.step || slurm.batch) {
    plan.spec.shutdown_timeout = slurm_grace(plan.spec.shutdown_timeout, kill_wait_of(environment));
  }
  // On one node they are not used, but a mistake in them is one all the same.
  const RdzvSettings settings = read_rdzv_settings(plan.spec.rdzv_conf);
  if (plan.spec.max_nodes > 1) {
    plan.meeting = complete_meeting(plan.spec, plan.meeting);
    plan.notes.insert(plan.notes.end(), settings.notes.begin(), settings.notes.end());
  }
  if (!plan.speaks_for_all()) plan.notes.clear();
  if (slurm.step) plan.meeting.deadline = slurm.step->job.end_time;
  return plan;
}

ParsedRun as_run(const LaunchOptions& launch, const options::Origins& origins, int64_t num_workers,
                 const std::string& program) {
  ParsedRun run;
  RunOptions& options = run.options;
  const auto take = [&](const std::string& ours, const std::string& theirs) {
    const auto found = origins.find(theirs);
    if (found != origins.end()) run.origins[ours] = found->second;
  };
  options.nproc_per_node = std::to_string(num_workers);
  // Our own workers: SLURM's GPUs must not decide their number.
  run.origins["nproc_per_node"] = options::Origin{.kind = options::Origin::Kind::CommandLine, .file = {}, .line = 0};
  options.nnodes = launch.num_machines ? std::to_string(*launch.num_machines) : launch.nnodes;
  take("nnodes", launch.num_machines ? "num_machines" : "nnodes");
  options.node_rank = launch.machine_rank.value_or(launch.node_rank);
  take("node_rank", launch.machine_rank ? "machine_rank" : "node_rank");
  options.master_addr = launch.main_process_ip.value_or(launch.master_addr);
  take("master_addr", launch.main_process_ip ? "main_process_ip" : "master_addr");
  options.master_port = launch.main_process_port ? launch.main_process_port : launch.master_port;
  take("master_port", launch.main_process_port ? "main_process_port" : "master_port");
  options.local_addr = launch.local_addr;
  options.rdzv_backend = launch.rdzv_backend;
  options.rdzv_endpoint = launch.rdzv_endpoint;
  options.rdzv_id = launch.rdzv_id;
  options.rdzv_conf = launch.rdzv_conf;
  options.standalone = launch.standalone;
  options.max_restarts = launch.max_restarts;
  for (const char* key :
       {"local_addr", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone", "max_restarts"}) {
    take(key, key);
  }
  run.program = {program};
  return run;
}

int run_or_tell_the_others(JobPlan& plan, const std::function<int()>& work) {
  try {
    return work();
  } catch (const std::exception& problem) {
    const Error error = as_error(problem, current_limits());
    // A wrong command line is wrong on all nodes, as a rule, and each finds it out by itself.
    if (error.kind() == ErrorKind::Environment && plan.spec.max_nodes > 1 && !plan.others_know) tell_the_others(plan, error);
    throw;
  }
}

int run_plan_on_nodes(JobPlan& plan, NodeJob& job) {
  const RdzvSettings settings = read_rdzv_settings(plan.spec.rdzv_conf);
  plan.meeting.token = find_token(settings, plan.spec.environment);
  if (settings.token_file && net::readable_by_others(*settings.token_file)) {
    job.say(fmt::format("warning: others than you can read the job's token in {}. Type: chmod 600 {}", *settings.token_file,
                        *settings.token_file));
  }
  SecretOfStep secret(plan, &job);
  if (const int signal = job.interrupted_by(); signal != 0) {
    return job.finish({}, fmt::format("the launcher was stopped by SIG{} before its workers had started",
                                      sigabbrev_np(signal)), 128 + signal);
  }
  plan.meeting.on_round = [&] {
    plan.others_know = true;
    // Who comes later than the first round still needs it.
    if (plan.spec.min_nodes == plan.spec.max_nodes) secret.remove();
  };
  // While the secret of the step lies there for the others.
  return run_or_tell_the_others(plan, [&] { return run_on_nodes(plan.spec, plan.meeting, job); });
}

}  // namespace lockstep::launch
