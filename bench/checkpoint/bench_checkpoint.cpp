// An update here is a fixed number of bfloat16 products on two threads. Updates without a save, with the writer reading
// (1), and with the writer waiting for the device (2), take turns.
#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/checkpoint_writer.h"
#include "lockstep/shard/sharded_step.h"

#include "lockstep/base/deadline.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstdlib>

namespace lockstep::checkpoint {
namespace {

/// The shapes of SmolLM2-135M.
std::vector<tensor::ParamSpec> specs() {
  std::vector<tensor::ParamSpec> all = {{.name = "model.embed_tokens.weight", .shape = {49152, 576}, .block = 0}};
  for (int layer = 0; layer < 30; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const auto add = [&](const char* name, std::vector<int64_t> shape) {
      all.push_back({.name = prefix + name, .shape = std::move(shape), .block = 1 + layer});
    };
    add("self_attn.q_proj.weight", {576, 576});
    add("self_attn.k_proj.weight", {192, 576});
    add("self_attn.v_proj.weight", {192, 576});
    add("self_attn.o_proj.weight", {576, 576});
    add("mlp.gate_proj.weight", {1536, 576});
    add("mlp.up_proj.weight", {1536, 576});
    add("mlp.down_proj.weight", {576, 1536});
    add("input_layernorm.weight", {576});
    add("post_attention_layernorm.weight", {576});
  }
  all.push_back({.name = "model.norm.weight", .shape = {576}, .block = 31});
  return all;
}

class Work {
 public:
  explicit Work(ThreadTeam& team) : team_(team), a_(at::randn({1024, 1024}).to(at::kBFloat16)), b_(a_.clone()) {}

  double run(size_t items) const {
    const Clock::time_point start = Clock::now();
    team_.run(items, [&](size_t, int) {
      for (int i = 0; i < 20; ++i) at::mm(a_, b_);
    });
    return seconds_since(start);
  }
  /// Items that take so long.
  size_t items_for(double seconds) const {
    run(4);
    return std::max<size_t>(2, static_cast<size_t>(seconds / (run(40) / 40)));
  }

 private:
  ThreadTeam& team_;
  at::Tensor a_, b_;
};

CheckpointJob job_of(const shard::ShardedStep& sharded, const tensor::ParamLayout& layout, int64_t update) {
  CheckpointJob job{.update = update, .weights = weight_plans(layout, at::kFloat), .slices = {}, .files = {{"run.json", "{}"}}};
  for (const shard::OwnedState& owned : sharded.owned_states()) {
    job.slices.push_back({layout.spec(owned.param).name, owned.state, owned.begin, owned.end, owned.numel,
                          owned.values.data()});
  }
  return job;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const fs::path& folder, double seconds, int rounds) {
  const tensor::ParamLayout layout(specs());
  const auto comm = comm::make_self();
  tensor::ParamStore params(layout, at::kBFloat16, 1);
  ThreadTeam team(2);
  shard::ShardedStep sharded(params, *comm, team);
  sharded.load_state([](const shard::OwnedState& what, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(what.begin + static_cast<int64_t>(i)) * 1e-9f;
  });
  fs::create_directories(folder);
  CheckpointWriter writer(*comm, folder);
  const Work work(team);
  const size_t items = work.items_for(seconds);

  std::vector<double> plain, reading, syncing, stalls;
  fmt::print("{:>6} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9}\n", "round", "plain s", "reading s", "syncing s", "read s",
             "disk s", "MB/s", "stall s");
  for (int round = 1; round <= rounds; ++round) {
    plain.push_back(work.run(items));
    writer.begin(job_of(sharded, layout, round));
    const double first = work.run(items);
    writer.wait();
    const double second = work.run(items);
    const SaveReport report = *writer.wait().published;
    reading.push_back(first);
    syncing.push_back(second);
    stalls.push_back(report.stall_s);
    const double rate = 1e-6 * static_cast<double>(report.num_bytes) / report.read_s;
    fmt::print("{:>6} {:>9.3f} {:>9.3f} {:>9.3f} {:>8.2f} {:>8.2f} {:>9.0f} {:>9.4f}\n", round, plain.back(), first, second,
               report.read_s, report.disk_s, rate, report.stall_s);
    if (round > 1) writer.remove({folder / checkpoint_name(round - 1)});
  }
  const double base = median(plain);
  fmt::print("stall {:.2f} % of an update; both updates together {:+.2f} % of one longer\n", 100 * median(stalls) / base,
             100 * (median(reading) + median(syncing) + median(stalls) - 2 * base) / base);
  const Clock::time_point start = Clock::now();
  const bool whole = problems_of(folder / checkpoint_name(rounds), Verify::Content, &team).empty();
  fmt::print("verify with hashes: {:.2f} s on two threads, {}\n", seconds_since(start), whole ? "whole" : "DAMAGED");
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_checkpoint FOLDER [SECONDS per update] [ROUNDS]\n");
    return 2;
  }
  lockstep::checkpoint::measure(argv[1], argc > 2 ? std::atof(argv[2]) : 6, argc > 3 ? std::atoi(argv[3]) : 5);
  return 0;
}
