#include "lockstep/launch/doctor.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/doctor_checks.h"
#include "lockstep/launch/doctor_clock.h"
#include "lockstep/launch/doctor_facts.h"
#include "lockstep/launch/doctor_network.h"
#include "lockstep/launch/host_name.h"
#include "lockstep/launch/slurm_conf.h"
#include "lockstep/launch/slurm_munge.h"
#include "lockstep/options/environment.h"
#include "lockstep/options/help.h"
#include "lockstep/options/resolve.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>

namespace lockstep::launch {
namespace {

constexpr const char* kDoctorIntroduction = R"(lockstep doctor [OPTIONS]

Checks this node for `lockstep run` and `lockstep sft`: names, addresses, ports, versions, limits, memory, CPUs,
folders, GPUs, SLURM. Each line is OK, warn or FAIL, with what to change. Exit code 4 when something FAILs.

  lockstep doctor                                     this node alone
  lockstep doctor --listen --rdzv_endpoint n0:29500   on n0: check, then answer the other nodes
  lockstep doctor --rdzv_endpoint n0:29500            on the others: the way to n0, its clock, UDP
  srun --ntasks-per-node=1 lockstep doctor            on every node of a SLURM job
)";

constexpr uint16_t kDefaultPort = 29'400;

struct DoctorOptions {
  std::optional<std::string> rdzv_endpoint;
  bool listen = false;
  double listen_for = 600;
  double timeout = 5;
  std::optional<std::string> output_dir;

  template <class V>
  void visit(V& v) {
    v.group("Doctor");
    v("rdzv_endpoint", rdzv_endpoint, "HOST:PORT where the nodes will meet; the way there is checked.")
        .unset("only this node is checked");
    v("listen", listen, "Answer other doctors on the endpoint's port (29400 without one) after the checks.");
    v("listen_for", listen_for, "How long to answer.").unit("seconds").above(0).at_most(1e6);
    v("timeout", timeout, "Longest wait for a name, and for a connection.").unit("seconds").above(0).at_most(600);
    v("output_dir", output_dir, "A folder that is checked beside the current one.").unit("path").unset("none");
  }
};

/// Prints each finding as soon as it is known.
class Printer {
 public:
  void add(const Finding& finding) {
    fmt::print("{}", finding_text(finding));
    std::fflush(stdout);
    all_.push_back(finding);
  }
  void add(const Findings& findings) {
    for (const Finding& finding : findings) add(finding);
  }
  const Findings& all() const { return all_; }

 private:
  Findings all_;
};

std::vector<net::Address> own_addresses(Printer& printer) {
  try {
    return net::local_addresses();
  } catch (const Error& problem) {
    printer.add({Verdict::Warn, "addresses", problem.what(), "The other checks go on without them."});
    return {};
  }
}

void check_this_node(const DoctorOptions& options, Printer& printer) {
  const Environment environment = current_environment();
  const SlurmConf conf = read_slurm_conf(environment);
  NodeFacts facts = gather_node_facts();
  facts.folders.push_back(gather_folder_facts(".", "current folder"));
  if (options.output_dir) facts.folders.push_back(gather_folder_facts(*options.output_dir, "--output_dir"));
  const bool is_in_slurm = environment.contains("SLURM_JOB_ID");
  printer.add(check_node(facts, LOCKSTEP_VERSION, options.rdzv_endpoint || is_in_slurm));
  std::string munge_problem;
  if (is_in_slurm && Munge::open(conf.munge_socket, munge_problem) != nullptr) munge_problem.clear();
  printer.add(check_slurm(environment, facts, munge_problem, conf.kill_wait));
}

void answer_others(const DoctorOptions& options, const net::Endpoint& endpoint) {
  net::EventLoop loop;
  const auto tell = [](const net::Address& peer) {
    fmt::print("a doctor at {} asked\n", peer.host());
    std::fflush(stdout);
  };
  const ClockServer server(loop, net::ListenSocket::open(std::nullopt, endpoint.port), own_host_name(),
                           LOCKSTEP_VERSION, tell);
  const net::Endpoint shown{options.rdzv_endpoint ? endpoint.host : own_host_name(), server.port()};
  fmt::print("answers for {:.0f} s (Ctrl-C ends it). On the other nodes: lockstep doctor --rdzv_endpoint {}\n",
             options.listen_for, shown.text());
  std::fflush(stdout);
  const Deadline deadline = Deadline::in(Milliseconds(static_cast<int64_t>(1e3 * options.listen_for)));
  while (!deadline.passed()) loop.run_once(deadline.remaining());
}

int examine(const DoctorOptions& options) {
  const auto longest = Milliseconds(static_cast<int64_t>(1e3 * options.timeout));
  const auto endpoint =
      net::Endpoint::parse(options.rdzv_endpoint.value_or("localhost"), kDefaultPort, "--rdzv_endpoint");
  if (endpoint.port == 0 && options.rdzv_endpoint && !options.listen) {
    throw Error::usage("--rdzv_endpoint {}: port 0 cannot be connected to; give the port that the nodes will use.",
                       *options.rdzv_endpoint);
  }
  Printer printer;
  check_this_node(options, printer);
  const std::vector<net::Address> local = own_addresses(printer);
  printer.add(check_own_name(own_host_name(), local, longest));
  printer.add(check_local_ports(local, longest));
  if (options.rdzv_endpoint && endpoint.port != 0) printer.add(check_endpoint(endpoint, local, longest));
  fmt::print("{}", summary_text(printer.all()));
  std::fflush(stdout);
  if (options.listen) answer_others(options, endpoint);
  return doctor_exit_code(printer.all());
}

}  // namespace

int run_doctor_command(const std::vector<std::string>& args) {
  DoctorOptions given;
  const options::Fields fields = options::collect(given);
  const options::Resolved resolved = options::resolve(args, fields);
  if (resolved.help != options::Help::None) {
    const auto page = options::Environment::of_this_process().page;
    fmt::print("{}", options::help_text(fields, kDoctorIntroduction, resolved.help, page));
    return 0;
  }
  resolved.problems.throw_if_any();
  if (resolved.dry_run) {
    fmt::print("{}", options::resolved_text(fields, resolved.origins, options::Environment::of_this_process().page));
    return 0;
  }
  return examine(given);
}

}  // namespace lockstep::launch
