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
    v("num_processes", num_processes, "accelerate's word for the number of processes.")
        .accepted({"1"})
        .refused("the number of processes is given in torchrun's words", "Use --nproc_per_node.");
    v("nnodes", nnodes, "Number of machines.").accepted({"1:1"}).refused(kOneNode, kStay);
    v("num_machines", num_machines, "accelerate's word for the number of machines.")
        .accepted({"1"}).refused(kOneNode, kStay);
    v("node_rank", node_rank, "Index of this machine.").refused(kOneNode, kStay);
    v("machine_rank", machine_rank, "accelerate's word for the index of this machine.")
        .accepted({"0"}).refused(kOneNode, kStay);
    v("master_addr", master_addr, "Address of the first machine.").accepted({"localhost"}).refused(kOneNode, kStay);
    v("master_port", master_port, "Port of the first machine.").no_object(kFreePort);
    v("main_process_ip", main_process_ip, "accelerate's word for the address of the first machine.")
        .accepted({"127.0.0.1", "localhost"}).refused(kOneNode, kStay);
    v("main_process_port", main_process_port, "accelerate's word for the port.").no_object(kFreePort);
    v("rdzv_backend", rdzv_backend, "How machines find each other.").accepted({"c10d"}).refused(kOneNode, kStay);
    v("rdzv_endpoint", rdzv_endpoint, "Where machines find each other.").refused(kOneNode, kStay);
    v("rdzv_id", rdzv_id, "Name of the job among machines.").refused(kOneNode, kStay);
    v("rdzv_conf", rdzv_conf, "Further settings of the rendezvous.").refused(kOneNode, kStay);
    v("standalone", standalone, "One machine, any free port.").no_object("one machine is what lockstep runs on");
    v("max_restarts", max_restarts, "Restarts after a failure.")
        .refused("restarts are not there yet", "Leave it out: a failed run ends with the first cause.");
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
        .refused("processes exchange tensors by gloo, the only way so far", "Leave it out.");
    v("fsdp", fsdp, "Sharding by FSDP.").accepted({""}).refused(kSharding, kSharded);
    v("fsdp_config", fsdp_config, "Settings of FSDP.").json().refused(kSharding, kSharded);
    v("deepspeed", deepspeed, "Sharding by DeepSpeed.").refused(kSharding, kSharded);
    v("accelerator_config", accelerator_config, "Settings of accelerate.").json()
        .refused("accelerate is not used", "Leave it out.");
    v("parallelism_config", parallelism_config, "Layout of accelerate.").json()
        .refused("accelerate is not used", "Use --nproc_per_node.");
  }

 private:
  static constexpr const char* kOneNode = "several machines are not there yet";
  static constexpr const char* kStay = "Leave it out and use --nproc_per_node on one machine.";
  static constexpr const char* kFreePort = "one machine: the processes meet at a free port";
  static constexpr const char* kCpu = "the CPU is what lockstep computes on so far";
  static constexpr const char* kNoDdp = "DDP is not used";
  static constexpr const char* kSharding = "FSDP and DeepSpeed are not used";
  static constexpr const char* kSharded =
      "Leave it out: gradients and optimizer state are sharded over the processes by themselves (as ZeRO-1).";
};

/// Number of workers that `nproc_per_node` (already validated) means on a machine with `cores` usable cores.
inline int64_t num_workers(const LaunchOptions& options, int64_t cores) {
  const std::string& text = options.nproc_per_node;
  return text == "auto" || text == "cpu" ? cores : std::stoll(text);
}

}  // namespace lockstep::launch
