#include "lockstep/recipes/cli_checks.h"

#include "lockstep/base/files.h"

namespace lockstep::recipes {

using options::Origin;
using options::Origins;
using options::Page;
using options::Problems;
using options::Words;

bool is_given(const Origins& origins, std::string_view key) {
  return options::origin_of(origins, key).kind != Origin::Kind::Default;
}

void check_batch(const train::TrainOptions& train, const launch::LaunchOptions& launch, const Origins& origins,
                 const options::Environment& environment, Problems& problems) {
  if (!train.global_batch_size) return;
  const bool batch_given = is_given(origins, "per_device_train_batch_size");
  const bool accumulation_given = is_given(origins, "gradient_accumulation_steps");
  const bool nodes_given = is_given(origins, "nnodes") || is_given(origins, "num_machines");
  const int64_t nodes = nodes_given || launch.standalone ? launch::num_nodes(launch) : environment.nodes;
  const int64_t workers = launch::num_workers(launch, environment.cores) * nodes;
  const int64_t batch = train.per_device_train_batch_size;
  const int64_t accumulation = train.gradient_accumulation_steps;
  const std::string global = with_origin(origins, "global_batch_size", *train.global_batch_size);
  if (batch_given && accumulation_given && batch * workers * accumulation != *train.global_batch_size) {
    problems.add(fmt::format(
        "{}: per_device_train_batch_size x nproc_per_node x gradient_accumulation_steps = {} x {} x {} = {}. "
        "Leave out --global_batch_size, or one of the factors.",
        global, batch, workers, accumulation, batch * workers * accumulation));
  } else if (batch_given != accumulation_given) {
    const int64_t given = workers * (batch_given ? batch : accumulation);
    if (*train.global_batch_size % given == 0) return;
    problems.add(fmt::format("{}: not a multiple of {} x nproc_per_node = {} x {} = {}. Leave one of the two out.",
                             global, batch_given ? "per_device_train_batch_size" : "gradient_accumulation_steps",
                             batch_given ? batch : accumulation, workers, given));
  }
}

void check_launch(const launch::LaunchOptions& launch, const Origins& origins, Problems& problems) {
  const auto contradict = [&](std::string_view ours, const auto& our_value, std::string_view theirs, auto their_value) {
    problems.add(fmt::format("{} and {} contradict each other. Leave one out.", with_origin(origins, ours, our_value),
                             with_origin(origins, theirs, their_value)));
  };
  const int64_t nodes = launch::num_nodes(launch);
  if (launch.num_machines && is_given(origins, "nnodes") && launch.nnodes != std::to_string(nodes) &&
      launch.nnodes != fmt::format("{0}:{0}", nodes)) {
    contradict("nnodes", launch.nnodes, "num_machines", nodes);
  }
  if (launch.machine_rank && is_given(origins, "node_rank") && launch.node_rank != *launch.machine_rank) {
    contradict("node_rank", launch.node_rank, "machine_rank", *launch.machine_rank);
  }
  if (!launch.num_processes) return;
  if (*launch.num_processes % nodes != 0) {
    problems.add(fmt::format("{}: not a multiple of the {} machines. Use --nproc_per_node on each.",
                             with_origin(origins, "num_processes", *launch.num_processes), nodes));
  } else if (is_given(origins, "nproc_per_node") &&
             launch.nproc_per_node != std::to_string(*launch.num_processes / nodes)) {
    contradict("nproc_per_node", launch.nproc_per_node, "num_processes", *launch.num_processes);
  }
}

void check_output(train::TrainOptions& train, const Origins& origins, Problems& problems) {
  if (!train.output_dir) return;
  if (train.output_dir->empty()) {
    problems.add(with_origin(origins, "output_dir", "''") + ": is empty. Name a folder, or leave it out: trainer_output.");
  }
  train.output_dir = expand_user(*train.output_dir);
}

void check_duration(const train::TrainOptions& train, const Origins& origins, Problems& problems, Words& notes) {
  if (train.max_steps == 0) {
    problems.add(with_origin(origins, "max_steps", 0) + ": must be -1 (as num_train_epochs says) or at least 1.");
  }
  if (train.max_steps > 0 && is_given(origins, "num_train_epochs")) {
    notes.push_back(fmt::format("{} has no effect: {} says how long training lasts.",
                                with_origin(origins, "num_train_epochs", train.num_train_epochs),
                                with_origin(origins, "max_steps", train.max_steps)));
  }
  if (train.activation_checkpointing && train.gradient_checkpointing &&
      *train.activation_checkpointing != *train.gradient_checkpointing) {
    problems.add(fmt::format("{} and {} are two names of one option. Leave one out.",
                             with_origin(origins, "activation_checkpointing", *train.activation_checkpointing),
                             with_origin(origins, "gradient_checkpointing", *train.gradient_checkpointing)));
  }
}

namespace {

/// Where `output` will be: folders of it that are missing are made first, after which ".." leads out of them. One that was
/// saved is put in place by the path without "..", which links may make another.
std::vector<std::filesystem::path> places_of_output(const std::filesystem::path& output) {
  std::error_code problem;
  const std::filesystem::path plain = std::filesystem::absolute(output / "").lexically_normal();
  return {std::filesystem::weakly_canonical(output, problem), std::filesystem::weakly_canonical(plain, problem)};
}

bool is_checkpoint_name(const std::string& name) {
  constexpr std::string_view kStart = "checkpoint-";
  return name.starts_with(kStart) && name.size() > kStart.size() &&
         name.find_first_not_of("0123456789", kStart.size()) == std::string::npos;
}

}  // namespace

Replaced replaced_by_run(const std::filesystem::path& model, const std::filesystem::path& output, bool saves) {
  std::error_code problem;
  const std::filesystem::path start = std::filesystem::canonical(model, problem);
  if (problem) return Replaced::Nothing;
  for (const std::filesystem::path& place : places_of_output(output)) {
    if (std::filesystem::equivalent(start, place, problem)) return Replaced::Model;
    for (std::filesystem::path inner = start; saves && inner.has_relative_path(); inner = inner.parent_path()) {
      if (!is_checkpoint_name(inner.filename().string())) continue;
      if (std::filesystem::equivalent(inner.parent_path(), place, problem)) return Replaced::Checkpoint;
    }
  }
  return Replaced::Nothing;
}

std::string example_lines(std::span<const CommandExample> examples, const Page& page) {
  std::string text;
  for (const CommandExample& example : examples) {
    text += fmt::format("  {}\n", example.purpose);
    // A shell joins lines at a backslash, so that a long example can be pasted as it stands.
    const Words lines = options::wrap(example.command, page.width > 40 ? page.width - 8 : 32);
    for (size_t i = 0; i < lines.size(); ++i) {
      text += fmt::format("{}{}{}\n", i == 0 ? "    " : "      ", lines[i], i + 1 < lines.size() ? " \\" : "");
    }
  }
  return text;
}

}  // namespace lockstep::recipes
