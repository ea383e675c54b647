#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// The flags of `lockstep run`, which are torchrun's. Values are kept as they were written; make_run_spec() reads them.
/// visit() is written in the words of options/field.h.
struct RunOptions {
  std::string nproc_per_node = "1";
  std::string nnodes = "1:1";
  int64_t max_restarts = 0;
  std::string role = "default";
  bool virtual_local_rank = false;

  bool module = false;
  bool no_python = false;

  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::string rdzv_conf;
  bool standalone = false;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int64_t> master_port;
  std::optional<std::string> local_addr;

  std::optional<std::string> log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string log_line_prefix_template;
  std::string local_ranks_filter;
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;

  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::optional<int64_t> shutdown_timeout;
  std::optional<std::string> print_completion;

  std::string start_method = "spawn";
  double monitor_interval = 0.1;
  double exit_barrier_timeout = 300;
  std::string event_log_handler = "null";
  bool run_path = false;
  std::optional<std::string> logs_specs;
  std::optional<std::string> numa_binding;

  template <class V>
  void visit(V& v) {
    v.group("Processes");
    v("nproc_per_node", nproc_per_node,
      "Workers on this node: a number; cpu: one per CPU it may use; gpu: one per visible GPU; auto: GPUs if there are "
      "any, else CPUs.")
        .pattern("[1-9][0-9]{0,3}|auto|cpu|gpu", "a number from 1 to 9999, or auto, cpu, gpu")
        .refused_values({"xpu", "hpu", "npu", "mtia", "mps"}, "devices of this type are not counted",
                        "Give their number.");
    v("nnodes", nnodes, "Nodes: a number, or MIN:MAX.").pattern("[0-9]{1,6}(:[0-9]{1,6})?", "a number, or MIN:MAX");
    v("max_restarts", max_restarts, "Restarts after a failure, counted for the whole job.").at_least(0).at_most(1e9);
    v("role", role, "Name of the workers' role: ROLE_NAME, and part of the prefix of their lines.");
    v("virtual_local_rank", virtual_local_rank,
      "Every worker sees LOCAL_RANK 0 and one device (CUDA_VISIBLE_DEVICES).");

    v.group("Program");
    v("module", module, "PROGRAM is the name of a Python module (short: -m).");
    v("no_python", no_python, "PROGRAM is executed as it is, whatever its name.");

    v.group("Several nodes");
    v("rdzv_backend", rdzv_backend,
      "c10d: ranks are given out by the launcher; static: each node has its --node_rank.")
        .refused_values({"etcd", "etcd-v2"}, "an etcd server is not used: the nodes meet at one of themselves",
                        "Use c10d and --rdzv_endpoint HOST:PORT, the same on every node.")
        .choices({"static", "c10d"});
    v("rdzv_endpoint", rdzv_endpoint, "HOST[:PORT] of the node where all meet, the same on every node. Port: 29400.");
    v("rdzv_id", rdzv_id, "Name of the job: two jobs at one endpoint are kept apart by it.");
    v("rdzv_conf", rdzv_conf, "Settings of the rendezvous, KEY=VALUE,KEY=VALUE: join_timeout=600 ...");
    v("standalone", standalone, "One node, any free port (also the default when nothing else is said).");
    v("node_rank", node_rank, "Rank of this node.").at_least(0);
    v("master_addr", master_addr, "Address of node 0 (static, when there is no --rdzv_endpoint).");
    v("master_port", master_port, "Port of node 0 (the same).").unset("29500").at_least(0).at_most(65535);
    v("local_addr", local_addr, "Address under which other nodes reach this one.").unset("found out");

    v.group("Output");
    v("log_dir", log_dir, "Folder of the log files; /dev/null: none.")
        .unit("path").unset("a temporary folder, removed after a success");
    v("redirects", redirects,
      "Output into files: 0 none, 1 stdout, 2 stderr, 3 both, or LOCAL_RANK:N,... (short: -r).");
    v("tee", tee, "Output into files and, with a prefix, to the console; as --redirects (short: -t).");
    v("log_line_prefix_template", log_line_prefix_template,
      "Prefix of tee'd lines; ${role_name}, ${rank}, ${local_rank} and ${hostname} are filled in. "
      "[[${role_name}${local_rank}]:]");
    v("local_ranks_filter", local_ranks_filter, "Only these local ranks write to the console (0,1,...).");
    v("duplicate_stdout_filters", duplicate_stdout_filters,
      "Tee'd lines of stdout with one of these words go to filtered_stdout.log too (a,b; ,, is a comma).");
    v("duplicate_stderr_filters", duplicate_stderr_filters, "The same for stderr and filtered_stderr.log.");

    v.group("End");
    v("signals_to_handle", signals_to_handle, "Signals that are passed on to the workers and end the job.");
    v("shutdown_timeout", shutdown_timeout, "From such a signal, or a failure, until workers are killed.")
        .unit("seconds").unset("TORCH_ELASTIC_SHUTDOWN_TIMEOUT, or 30").at_least(0).at_most(1e6);
    v("print_completion", print_completion, "Print a completion script for a shell.").choices({"bash", "zsh", "tcsh"});

    v("start_method", start_method, "How Python starts functions.")
        .choices({"spawn", "fork", "forkserver"}).no_object("workers are programs, not functions of a Python process");
    v("monitor_interval", monitor_interval, "Seconds between looks at the workers.")
        .at_least(0).no_object("the end of a worker is noticed at once");
    v("exit_barrier_timeout", exit_barrier_timeout, "Longest wait for the other nodes at the end, in seconds.")
        .no_object("nodes tell each other when they have ended");
    v("event_log_handler", event_log_handler, "Where Python's launcher sends its events.")
        .refused("handlers of events are Python plug-ins", "Leave it out: events are printed as lines on stderr.");
    v("run_path", run_path, "Run the script inside a process of the launcher.")
        .refused("lockstep has no Python interpreter of its own", "Leave it out: python3 runs the script.");
    v("logs_specs", logs_specs, "A Python plug-in that places log files.")
        .refused("it names a Python plug-in", "Use --log_dir, --redirects and --tee.");
    v("numa_binding", numa_binding, "Bind workers to processors near their GPU.")
        .choices({"node", "socket", "exclusive", "core-complex"})
        .refused("it places each worker near the GPU of its number, and lockstep does not know GPUs yet; without GPUs torchrun "
                 "fails with it too",
                 "Leave it out, or start the program through numactl.");
  }
};

}  // namespace lockstep::launch
