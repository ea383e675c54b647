#include "lockstep/launch/torchrun_environment.h"

#include "lockstep/base/error.h"

#include <string_view>

namespace lockstep::launch {

namespace {

bool sets_omp(const RunSpec& spec) { return spec.num_workers > 1 && !spec.environment.contains("OMP_NUM_THREADS"); }

std::string trimmed_text(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

/// The `index`-th entry of a comma-separated list; throws when there are fewer.
std::string listed_device(const std::string& name, const std::string& list, int index) {
  std::string_view rest = list;
  for (int i = 0; i < index; ++i) {
    const size_t comma = rest.find(',');
    if (comma == std::string_view::npos) {
      throw Error::usage("--virtual_local_rank: local rank {} has no device in {}={}. Start fewer workers, or make "
                         "more devices visible.", index, name, list);
    }
    rest.remove_prefix(comma + 1);
  }
  return trimmed_text(rest.substr(0, rest.find(',')));
}

/// One device per worker, mapped through what the caller sees itself. ROCm's variable goes before CUDA's.
void choose_device(int local_rank, Environment& result) {
  result["LOCAL_RANK"] = "0";
  const auto hip = result.find("HIP_VISIBLE_DEVICES");
  const bool is_hip = hip != result.end() && !hip->second.empty();
  const std::string name = is_hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
  const auto visible = result.find(name);
  const std::string device =
      visible == result.end() ? std::to_string(local_rank) : listed_device(name, visible->second, local_rank);
  result["CUDA_VISIBLE_DEVICES"] = device;
  if (is_hip) result["HIP_VISIBLE_DEVICES"] = device;
}

}  // namespace

Environment torchrun_environment(const RunSpec& spec, const Placement& placement, int local_rank,
                                 const std::string& error_file) {
  const auto text = [](auto number) { return std::to_string(number); };
  Environment result = spec.environment;
  const Environment decided = {
      {"RANK", text(placement.rank_base + local_rank)},
      {"LOCAL_RANK", text(local_rank)},
      {"GROUP_RANK", text(placement.group_rank)},
      {"ROLE_RANK", text(placement.role_rank_base + local_rank)},
      {"ROLE_NAME", spec.role},
      {"LOCAL_WORLD_SIZE", text(spec.num_workers)},
      {"WORLD_SIZE", text(placement.world_size)},
      {"GROUP_WORLD_SIZE", text(placement.group_world_size)},
      {"ROLE_WORLD_SIZE", text(placement.role_world_size)},
      {"MASTER_ADDR", placement.master_addr},
      {"MASTER_PORT", text(placement.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", text(placement.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", text(spec.max_restarts)},
      {"TORCHELASTIC_RUN_ID", spec.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", spec.use_agent_store ? "True" : "False"},
      {"TORCHELASTIC_ERROR_FILE", error_file},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", spec.signals_text},
      {"LOCKSTEP_RESTART_COUNT", text(placement.restart_count)},
      {"LOCKSTEP_NODE_INDEX", text(placement.node_index)},
  };
  for (const auto& [name, value] : decided) result.insert_or_assign(name, value);
  result.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (sets_omp(spec)) result["OMP_NUM_THREADS"] = "1";
  if (spec.virtual_local_rank) choose_device(local_rank, result);
  result.erase("LOCKSTEP_HOST_LIST_FILE");
  result.erase("LOCKSTEP_DEADLINE");
  if (placement.host_list_file) result["LOCKSTEP_HOST_LIST_FILE"] = placement.host_list_file->string();
  if (placement.deadline) result["LOCKSTEP_DEADLINE"] = text(*placement.deadline);
  return result;
}

std::string omp_note(const RunSpec& spec) {
  if (!sets_omp(spec)) return {};
  return "OMP_NUM_THREADS is not set: each worker gets 1, so that they do not fight for the processors. Set it to give "
         "them more threads.";
}

}  // namespace lockstep::launch
