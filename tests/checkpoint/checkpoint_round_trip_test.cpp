// What any number of ranks wrote, any number reads back bit for bit.
#include "checkpoint/checkpoint_rig.h"

#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/file_hash.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep::checkpoint {
namespace {

using rig::Rank;

std::vector<std::string> none(int size) { return std::vector<std::string>(static_cast<size_t>(size)); }

/// Reads `checkpoint` on `size` ranks and compares everything.
void expect_readable_by(int size, const fs::path& checkpoint, int64_t update) {
  const auto errors = rig::run_ranks(size, [&](comm::Communicator& comm) {
    const CheckpointReader reader(checkpoint);
    Rank rank(comm);
    rank.load(reader);
    EXPECT_EQ(rank.num_wrong(update), 0) << "rank " << comm.rank() << " of " << size;
  });
  EXPECT_EQ(errors, none(size));
}

TEST(CheckpointRoundTrip, AnyNumberOfRanksReadsAnyOther) {
  const TempFolder output("checkpoint");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int writers : {1, 2, 3, 5}) {
      const int64_t update = 10 * writers + (dtype == at::kFloat ? 0 : 1);
      rig::save_with(writers, output.path(), update, dtype);
      const fs::path folder = output.path() / checkpoint_name(update);
      EXPECT_TRUE(problems_of(folder, Verify::Content).empty());
      for (const int readers : {1, 2, 3, 4}) expect_readable_by(readers, folder, update);
    }
  }
}

/// As one process would write the whole model at once.
std::string whole_model(int64_t update, at::ScalarType dtype, const fs::path& scratch) {
  std::vector<tensor::NamedTensor> tensors;
  for (tensor::ParamId id = 0; id < rig::layout().num_params(); ++id) {
    at::Tensor values = at::empty(rig::layout().spec(id).shape, at::kFloat);
    for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<float>()[i] = rig::value_at(update, id, "master", i);
    tensors.push_back({rig::layout().spec(id).name, values.to(dtype)});
  }
  tensor::write_safetensors(scratch, tensors);
  return read_file(scratch);
}

TEST(CheckpointRoundTrip, TheModelFileIsThatOfOneProcess) {
  const TempFolder output("checkpoint");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::string wanted = whole_model(4, dtype, output.path() / "whole");
    for (const int writers : {1, 3}) {
      rig::save_with(writers, output.path(), 4, dtype);
      const fs::path model = output.path() / "checkpoint-4" / "model.safetensors";
      EXPECT_TRUE(read_file(model) == wanted) << writers << " ranks";
      EXPECT_EQ(read_manifest(output.path() / "checkpoint-4").find("model.safetensors")->hash, hash_of_file(model));
    }
  }
}

TEST(CheckpointRoundTrip, HoldsWhatItsManifestNames) {
  const TempFolder output("checkpoint");
  rig::save_with(2, output.path(), 6);
  EXPECT_EQ(rig::entries(output.path()), std::vector<std::string>{"checkpoint-6"}) << "no probe, no unfinished folder";
  const fs::path folder = output.path() / "checkpoint-6";
  const std::vector<std::string> wanted = {"additional/one.jinja", "config.json", "model.safetensors",
                                           "optimizer/part-0-of-2.safetensors", "optimizer/part-1-of-2.safetensors",
                                           "run.json"};
  std::vector<std::string> named;
  const Manifest manifest = read_manifest(folder);
  for (const ManifestFile& file : manifest.files) named.push_back(file.name);
  EXPECT_EQ(named, wanted);
  EXPECT_EQ(manifest.update, 6);
  EXPECT_EQ(manifest.world_size, 2);
  EXPECT_EQ(manifest.weights_dtype, "float32");
  EXPECT_EQ(manifest.find("run.json")->hash, hash_bytes(std::as_bytes(std::span("{\"seed\": 1}\n", 12))));
  EXPECT_EQ(CheckpointReader(folder).text("run.json"), "{\"seed\": 1}\n");
  EXPECT_EQ(CheckpointReader(folder).state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));

  const tensor::SafetensorsFile part(folder / "optimizer/part-1-of-2.safetensors");
  EXPECT_EQ(part.metadata().at("head.weight.exp_avg"), "8192 12800 12800");
  EXPECT_FALSE(part.entries().contains("head.weight.master")) << "float32 weights are not written twice";
}

TEST(CheckpointRoundTrip, ShardsTheModelWithAnIndex) {
  const TempFolder output("checkpoint");
  const auto errors = rig::run_ranks(2, [&](comm::Communicator& comm) {
    Rank rank(comm);
    rank.fill(3);
    CheckpointWriter writer(comm, output.path());
    CheckpointJob job = rank.job(3);
    job.max_shard_bytes = 40'000;
    writer.begin(std::move(job));
    EXPECT_TRUE(writer.saving());
    EXPECT_TRUE(writer.finish().published.has_value());
  });
  EXPECT_EQ(errors, none(2));
  const fs::path folder = output.path() / "checkpoint-3";
  EXPECT_TRUE(fs::exists(folder / "model-00004-of-00004.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "model.safetensors.index.json"));
  EXPECT_TRUE(problems_of(folder, Verify::Content).empty());
  expect_readable_by(3, folder, 3);
}

/// A job whose optimizer keeps, beside a state per element, one per row under the same parameter; rank 0 has it whole.
CheckpointJob with_row_state(CheckpointJob job, int rank, const std::vector<float>& rows) {
  if (rank == 0) job.slices.push_back({"layer.up.weight", "exp_avg_sq_row", 0, 129, 129, rows.data()});
  return job;
}

TEST(CheckpointRoundTrip, TakesStatesOfOtherSizes) {
  const TempFolder output("checkpoint");
  const std::vector<float> rows(129, 0.25f);
  const auto errors = rig::run_ranks(2, [&](comm::Communicator& comm) {
    Rank rank(comm);
    rank.fill(3);
    CheckpointWriter writer(comm, output.path());
    writer.begin(with_row_state(rank.job(3), comm.rank(), rows));
    writer.finish();
  });
  EXPECT_EQ(errors, none(2));
  const CheckpointReader reader(output.path() / "checkpoint-3");
  EXPECT_EQ(reader.numel("layer.up.weight", "exp_avg_sq_row"), 129);
  EXPECT_EQ(reader.numel("layer.down.weight", "exp_avg_sq_row"), std::nullopt);
  std::vector<float> read(100);
  reader.read("layer.up.weight", "exp_avg_sq_row", 29, read);
  EXPECT_EQ(read, std::vector<float>(100, 0.25f));
}

std::string error_of(const std::function<void()>& work, ErrorKind kind) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CheckpointReader, SaysWhatIsNotThere) {
  const TempFolder output("checkpoint");
  rig::save_with(1, output.path(), 1);
  const CheckpointReader reader(output.path() / "checkpoint-1");
  std::vector<float> out(4);
  const auto reading = [&](const CheckpointReader& from, const char* param, const char* state, int64_t begin) {
    return error_of([&] { from.read(param, state, begin, out); }, ErrorKind::Data);
  };
  EXPECT_NE(reading(reader, "head.bias", "momentum", 0).find("no momentum of head.bias. It holds exp_avg, exp_avg_sq"),
            std::string::npos);
  EXPECT_NE(reading(reader, "head.bias", "exp_avg", 2).find("has 5 elements, 2 to 6 were asked for"), std::string::npos);

  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto comm = comm::make_self();
    Rank rank(*comm);
    rank.fill(2);
    CheckpointWriter writer(*comm, output.path());
    CheckpointJob job = rank.job(2, dtype);
    job.optimizer = false;
    writer.begin(std::move(job));
    writer.finish();
    const CheckpointReader model_only(output.path() / "checkpoint-2");
    EXPECT_FALSE(model_only.manifest().optimizer);
    EXPECT_NE(reading(model_only, "head.bias", "exp_avg", 0).find("saved without the optimizer's state"), std::string::npos);
    if (dtype == at::kFloat) {
      model_only.read("head.bias", kMaster, 0, out);
      EXPECT_EQ(out[3], rig::value_at(2, 5, "master", 3));
    } else {
      EXPECT_NE(reading(model_only, "head.bias", "master", 0).find("saved without"), std::string::npos);
    }
  }
}

TEST(CheckpointWriter, RefusesWeightsThatAreNotFinite) {
  const TempFolder output("checkpoint");
  const auto save_with_value = [&](float value, at::ScalarType dtype) {
    return rig::run_ranks(2, [&](comm::Communicator& comm) {
      Rank rank(comm);
      rank.sharded.load_state([&](const shard::OwnedState& what, std::span<float> out) {
        std::fill(out.begin(), out.end(), 1.0f);
        if (what.param == 2 && what.state == "master" && what.begin > 0) out[7] = value;
      });
      CheckpointWriter writer(comm, output.path());
      writer.begin(rank.job(5, dtype));
      writer.finish();
    });
  };
  for (const std::string& error : save_with_value(std::numeric_limits<float>::quiet_NaN(), at::kFloat)) {
    EXPECT_TRUE(error.starts_with("NonFinite: checkpoint-5 was not saved: rank 1: after update 5 the weights of "
                                  "layer.up.weight hold NaN"))
        << error;
  }
  for (const std::string& error : save_with_value(1e6f, at::kHalf)) {
    EXPECT_NE(error.find("layer.up.weight holds values beyond the range of float16"), std::string::npos) << error;
  }
  EXPECT_TRUE(fs::is_empty(output.path()));
  EXPECT_EQ(save_with_value(1e6f, at::kFloat), none(2));
}

}  // namespace
}  // namespace lockstep::checkpoint
