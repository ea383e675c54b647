#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// How many processes run, and where. Members are named as the flags of torchrun and accelerate.
/// visit() is written in the words of options/field.h.
struct LaunchOptions {
  std::string nproc_per_node = "1";  ///< a count, or auto / cpu / gpu: see num_workers()
  std::optional<int64_t> threads_per_process;
  double start_timeout = 60;  ///< seconds
  int64_t ddp_timeout = 1800;  ///< seconds

  std::optional<int64_t> num_processes;
  std::string nnodes = "1";
  std::optional<int64_t> num_machines;
  int64_t node_rank = 0;
  std::optional<int64_t> machine_rank;
  std::string master_addr = "127.0.0.1";
  std::optional<int64_t> master_port;
  std::optional<std::string> main_process_ip;
  std::optional<int64_t> main_process_port;
  std::optional<std::string> local_addr;
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::string rdzv_conf;
  bool standalone = false;
  int64_t max_restarts = 0;
  double monitor_interval = 0.1;
  std::optional<std::string> log_dir;
  std::optional<std::string> accelerate_config;
  std::optional<std::string> mixed_precision;
  std::optional<int64_t> num_cpu_threads_per_process;
  bool multi_gpu = false;
  bool cpu = false;

  bool use_cpu = false;
  int64_t local_rank = -1;
  std::optional<bool> ddp_find_unused_parameters;
  std::optional<int64_t> ddp_bucket_cap_mb;
  std::optional<bool> ddp_broadcast_buffers;
  std::optional<bool> ddp_static_graph;
  std::optional<std::string> ddp_backend;
  std::optional<std::string> fsdp;
  std::optional<std::string> fsdp_config;
  std::optional<std::string> deepspeed;
  std::optional<std::string> accelerator_config;
  std::optional<std::string> parallelism_config;

  template <class V>
  void visit(V& v) {
    v.group("Processes");
    v("nproc_per_node", nproc_per_node, "Processes on this machine: a number, or auto or cpu for one per core.")
        .pattern("[1-9][0-9]{0,3}|auto|cpu|gpu", "a number from 1 to 9999, or auto, cpu")
        .refused_values({"gpu"}, "needs GPU support, which is not there yet", "Use a number, or auto.");
    v("threads_per_process", threads_per_process, "Threads that compute in each process.")
        .unset("the cores, shared evenly").at_least(1).at_most(4096);
    v("start_timeout", start_timeout, "Longest wait for all processes to have started.").unit("seconds").above(0);
    v("ddp_timeout", ddp_timeout, "Longest wait for another process during training.").unit("seconds").at_least(1);
    v("num_processes", num_processes, "accelerate's word for the processes of all machines together.").at_least(1)
        .at_most(1e6);
    v("nnodes", nnodes, "Number of machines. Start the same command on each, with one --rdzv_endpoint.")
        .pattern("[0-9]{1,6}(:[0-9]{1,6})?", "a number, or MIN:MAX");
    v("node_rank", node_rank, "Index of this machine; left out, machines are numbered by their names.").at_least(0);
    v("rdzv_backend", rdzv_backend, "How machines find each other: static needs --node_rank, c10d does not.")
        .refused_values({"etcd", "etcd-v2"}, "an etcd server is not used: machines meet at one of themselves",
                        "Use c10d and --rdzv_endpoint HOST:PORT, the same on every machine.")
        .choices({"static", "c10d"});
    v("rdzv_endpoint", rdzv_endpoint, "HOST[:PORT] of the machine where all meet, the same on every machine.");
    v("rdzv_id", rdzv_id, "Name of the job: two jobs at one endpoint are kept apart by it.");
    v("rdzv_conf", rdzv_conf, "Settings of the meeting, KEY=VALUE,KEY=VALUE: join_timeout=600 ...");
    v("local_addr", local_addr, "Address under which the other machines reach this one.").unset("found out");
    v("master_addr", master_addr, "Address of the first machine (static, without --rdzv_endpoint).");
    v("master_port", master_port, "Port of the first machine (the same).").unset("29500").at_least(0).at_most(65535);
    v("num_machines", num_machines, "accelerate's word for --nnodes.").at_least(1).at_most(1e6);
    v("machine_rank", machine_rank, "accelerate's word for --node_rank.").at_least(0);
    v("main_process_ip", main_process_ip, "accelerate's word for --master_addr.");
    v("main_process_port", main_process_port, "accelerate's word for --master_port.").at_least(0).at_most(65535);
    v("standalone", standalone, "One machine, any free port (also what holds when no other is named).");
    v("max_restarts", max_restarts, "Restarts after a failure, from the beginning, counted for all machines.")
        .at_least(0).at_most(1e9);
    v("monitor_interval", monitor_interval, "Seconds between looks at the processes.")
        .no_object("the end of a process is noticed at once");
    v("log_dir", log_dir, "Folder for the output of the processes.")
        .refused("log files per process are not there yet", "Leave it out: all output goes to the terminal.");
    v("accelerate_config", accelerate_config, "A profile of accelerate.")
        .refused("accelerate's profiles are not read", "Use --nproc_per_node and the flags of lockstep.");
    v("mixed_precision", mixed_precision, "accelerate's word for the type of the computation.")
        .accepted({"bf16", "no"})
        .refused("the type of the computation is given in trl's words", "Use --bf16 true or --bf16 false.");
    v("num_cpu_threads_per_process", num_cpu_threads_per_process, "accelerate's word for threads.")
        .refused("threads are given in lockstep's words", "Use --threads_per_process.");
    v("multi_gpu", multi_gpu, "Train on several GPUs.").refused("GPUs are not there yet", "Leave it out.");
    v("cpu", cpu, "Train on the CPU.").no_object(kCpu);
    v("use_cpu", use_cpu, "Train on the CPU.").no_object(kCpu);
    v("local_rank", local_rank, "Index of the process on its machine.").no_object("lockstep numbers its processes");
    v("ddp_find_unused_parameters", ddp_find_unused_parameters, "A setting of DDP.").no_object(kNoDdp);
    v("ddp_bucket_cap_mb", ddp_bucket_cap_mb, "A setting of DDP.").no_object(kNoDdp);
    v("ddp_broadcast_buffers", ddp_broadcast_buffers, "A setting of DDP.").no_object(kNoDdp);
    v("ddp_static_graph", ddp_static_graph, "A setting of DDP.").no_object(kNoDdp);
    v("ddp_backend", ddp_backend, "How processes exchange tensors.")
        .accepted({"gloo"})
        .refused("lockstep chooses by itself: shared memory on one host, gloo between hosts", "Leave it out.");
    v("fsdp", fsdp, "Sharding by FSDP.").accepted({""}).refused(kSharding, kSharded);
    v("fsdp_config", fsdp_config, "Settings of FSDP.").json().refused(kSharding, kSharded);
    v("deepspeed", deepspeed, "Sharding by DeepSpeed.").refused(kSharding, kSharded);
    v("accelerator_config", accelerator_config, "Settings of accelerate.").json()
        .refused("accelerate is not used", "Leave it out.");
    v("parallelism_config", parallelism_config, "Layout of accelerate.").json()
        .refused("accelerate is not used", "Use --nproc_per_node.");
  }

 private:
  static constexpr const char* kCpu = "the CPU is what lockstep computes on so far";
  static constexpr const char* kNoDdp = "DDP is not used";
  static constexpr const char* kSharding = "FSDP and DeepSpeed are not used";
  static constexpr const char* kSharded =
      "Leave it out: gradients and optimizer state are sharded over the processes by themselves (as ZeRO-1).";
};

/// Most machines that the options ask for: MAX of --nnodes, or accelerate's --num_machines.
inline int64_t num_nodes(const LaunchOptions& options) {
  if (options.num_machines) return *options.num_machines;
  const size_t colon = options.nnodes.find(':');
  return std::stoll(colon == std::string::npos ? options.nnodes : options.nnodes.substr(colon + 1));
}

/// Number of workers that the (already validated) options mean on a machine with `cores` usable cores.
inline int64_t num_workers(const LaunchOptions& options, int64_t cores) {
  if (options.num_processes) return *options.num_processes / num_nodes(options);
  const std::string& text = options.nproc_per_node;
  return text == "auto" || text == "cpu" ? cores : std::stoll(text);
}

}  // namespace lockstep::launch
