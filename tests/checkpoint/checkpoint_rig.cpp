#include "checkpoint/checkpoint_rig.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <mutex>
#include <thread>

namespace lockstep::checkpoint::rig {

const tensor::ParamLayout& layout() {
  static const tensor::ParamLayout result({
      {.name = "embed.weight", .shape = {70, 64}, .block = 0},
      {.name = "layer.norm.weight", .shape = {64}, .block = 1, .decay = false},
      {.name = "layer.up.weight", .shape = {129, 64}, .block = 1},
      {.name = "layer.down.weight", .shape = {64, 3}, .block = 1},
      {.name = "head.weight", .shape = {200, 64}, .block = 2},
      {.name = "head.bias", .shape = {5}, .block = 2, .decay = false},
  });
  return result;
}

float value_at(int64_t update, tensor::ParamId param, const std::string& state, int64_t element) {
  uint64_t bits = static_cast<uint64_t>(element) + 1'000'003 * static_cast<uint64_t>(param) + (uint64_t(update) << 40);
  bits ^= state == "master" ? 0 : state == "exp_avg" ? 0x1234'5678'9abc : 0xfedc'ba98'7654;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f;
}

Rank::Rank(comm::Communicator& comm)
    : params(layout(), at::kBFloat16, comm.size()), team(1), sharded(params, comm, team) {}

void Rank::fill(int64_t update) {
  sharded.load_state([&](const shard::OwnedState& what, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = value_at(update, what.param, what.state, what.begin + static_cast<int64_t>(i));
    }
  });
}

void Rank::load(const CheckpointReader& reader) {
  sharded.load_state([&](const shard::OwnedState& what, std::span<float> out) {
    reader.read(layout().spec(what.param).name, what.state, what.begin, out);
  });
}

CheckpointJob Rank::job(int64_t update, at::ScalarType dtype) const {
  CheckpointJob job;
  job.update = update;
  job.weights = weight_plans(layout(), dtype);
  for (const shard::OwnedState& owned : sharded.owned_states()) {
    job.slices.push_back({layout().spec(owned.param).name, owned.state, owned.begin, owned.end, owned.numel,
                          owned.values.data()});
  }
  job.files = {{"config.json", "{\"model_type\": \"tiny\"}\n"}, {"run.json", "{\"seed\": 1}\n"},
               {"additional/one.jinja", "{{ messages }}"}};
  return job;
}

int64_t Rank::num_wrong(int64_t update) const {
  int64_t wrong = 0;
  for (const shard::OwnedState& owned : sharded.owned_states()) {
    for (size_t i = 0; i < owned.values.size(); ++i) {
      const float wanted = value_at(update, owned.param, owned.state, owned.begin + static_cast<int64_t>(i));
      wrong += std::bit_cast<uint32_t>(owned.values[i]) != std::bit_cast<uint32_t>(wanted);
    }
  }
  for (tensor::ParamId id = 0; id < layout().num_params(); ++id) {
    const at::Tensor weight = params.weight(id).to(at::kFloat).reshape({-1});
    for (int64_t i = 0; i < weight.numel(); ++i) {
      const float master = value_at(update, id, "master", i);
      const float wanted = layout().spec(id).is_matrix() ? static_cast<float>(c10::BFloat16(master)) : master;
      wrong += weight.const_data_ptr<float>()[i] != wanted;
    }
  }
  return wrong;
}

std::vector<std::string> run_ranks(int size, const std::function<void(comm::Communicator&)>& work, Milliseconds timeout) {
  auto ranks = comm::make_threads(size, timeout);
  std::vector<std::string> errors(ranks.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(*ranks[rank]);
      } catch (const Error& error) {
        errors[rank] = std::string(name(error.kind())) + ": " + error.what();
        ranks[rank].reset();  // a rank that failed leaves, or the others would wait for it
      }
    });
  }
  threads.clear();
  return errors;
}

void save(comm::Communicator& comm, const fs::path& output, int64_t update, at::ScalarType dtype, Disk& disk) {
  Rank rank(comm);
  rank.fill(update);
  CheckpointWriter writer(comm, output, disk);
  writer.begin(rank.job(update, dtype));
  writer.wait();
  rank.fill(update + 100);
  const WaitResult result = writer.wait();
  LS_CHECK(result.published.has_value() && !writer.saving(), "not published");
}

void save_with(int size, const fs::path& output, int64_t update, at::ScalarType dtype) {
  for (const std::string& error : run_ranks(size, [&](comm::Communicator& comm) { save(comm, output, update, dtype); })) {
    if (!error.empty()) throw Error::internal("{}", error);
  }
}

int64_t num_wrong_in(const fs::path& checkpoint, int64_t update) {
  const auto comm = comm::make_self();
  Rank rank(*comm);
  rank.load(CheckpointReader(checkpoint));
  return rank.num_wrong(update);
}

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void write_over(const fs::path& file, int64_t offset, char byte) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(offset);
  stream.put(byte);
}

}  // namespace lockstep::checkpoint::rig
