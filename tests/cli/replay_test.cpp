// `lockstep replay` as a user starts it: any layout gives the logged bits, and what was damaged is found and named.
#include "command.h"
#include "model_files.h"

#include "lockstep/base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <thread>

namespace lockstep::cli {
namespace {

void expect_replay_says(const std::string& said, const std::string& text) {
  EXPECT_NE(said.find(text), std::string::npos) << "'" << text << "' is not in:\n" << said;
}

/// Two epochs of 50 rows in updates of 12 (5 an epoch, the last of each short), dropout on, saved every fourth update.
std::vector<std::string> run_to_replay(const Scratch& scratch, const std::vector<std::string>& more = {}) {
  if (!fs::exists(scratch / "data")) fs::copy(kTestData / "solution-pairs", scratch / "data");
  std::vector<std::string> args = {"classify", "--model_name_or_path", (kTinyModels / "bert").string(),
                                   "--dataset_name", (scratch / "data").string(),
                                   "--text_column", "question", "--text_pair_column", "solution", "--max_length", "48",
                                   "--ignore_mismatched_sizes", "--max_train_samples", "50", "--max_eval_samples", "5",
                                   "--learning_rate", "1e-3", "--num_train_epochs", "2", "--per_device_train_batch_size", "12",
                                   "--save_strategy", "steps", "--save_steps", "4", "--nproc_per_node", "1",
                                   "--threads_per_process", "1", "--disable_tqdm", "--output_dir", (scratch / "out").string()};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Ended replay(const Scratch& scratch, const std::string& output, const std::vector<std::string>& more) {
  std::vector<std::string> args = {"replay", output, "--threads_per_process", "1"};
  args.insert(args.end(), more.begin(), more.end());
  return run(scratch, args);
}

/// Every file of a folder with its content.
std::map<std::string, std::string> content_of(const fs::path& folder) {
  std::map<std::string, std::string> content;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    content[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path()) : "";
  }
  return content;
}

/// Changes the first element of a tensor of a checkpoint. `mended`: the manifest then says that all is as it was written.
void damage(const fs::path& checkpoint, const std::string& file, const std::string& tensor, bool mended) {
  constexpr size_t kPieceBytes = 4096 * sizeof(float);
  std::string bytes = read_file(checkpoint / file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const Json entry = Json::parse(bytes.substr(sizeof length, length)).at(tensor);
  const size_t head = sizeof length + length;
  const size_t begin = head + entry["data_offsets"][0].get<size_t>(), end = head + entry["data_offsets"][1].get<size_t>();
  const auto hash_of_piece = [&] {
    return hash_bytes(std::as_bytes(std::span(bytes.data() + begin, std::min(kPieceBytes, end - begin))), begin + 1);
  };
  const uint64_t before = hash_of_piece();
  bytes[begin + 2] = static_cast<char>(bytes[begin + 2] ^ 0x40);  // the second highest bit of the mantissa
  const uint64_t change = hash_of_piece() - before;
  write_file_atomically(checkpoint / file, bytes);
  if (!mended) return;
  change_json(checkpoint / "manifest.json", [&](Json& manifest) {
    for (Json& one : manifest["files"]) {
      if (one["name"] == file) one["hash"] = to_hex(std::stoull(one["hash"].get<std::string>(), nullptr, 16) + change);
    }
  });
}

/// A copy of the run with one update's line of metrics.jsonl changed.
void change_line(const fs::path& output, int64_t update, const std::function<void(Json&)>& change) {
  std::string text;
  for (const std::string& line : lines_of(output / "metrics.jsonl")) {
    Json json = Json::parse(line);
    if (json["step"] == update) change(json);
    text += json.dump() + "\n";
  }
  write_file_atomically(output / "metrics.jsonl", text);
}

TEST(Replay, AnyLayoutGivesTheLoggedBits) {
  const Scratch scratch;
  ASSERT_EQ(run(scratch, run_to_replay(scratch)).exit_code, 0);
  const std::string out = (scratch / "out").string();
  const auto before = content_of(out);
  const std::vector<std::pair<std::vector<std::string>, std::string>> replays = {
      {{"--nproc_per_node", "2"}, "Updates 9 to 10 give the logged bits\n"},
      {{"--update", "8", "--threads_per_process", "2"}, "Updates 5 to 8 give the logged bits\n"},
      {{"--checkpoint", "start", "--update", "9", "--nproc_per_node", "3"}, "Updates 1 to 9 give the logged bits\n"}};
  for (const auto& [words, last_line] : replays) {
    const Ended ended = replay(scratch, out, words);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.out, last_line);
    if (words[1] != "8") continue;
    expect_replay_says(ended.err, "updates 5 to 8 of " + out + " from " + out + "/checkpoint-4, 1 process x 2 threads");
    expect_replay_says(ended.err, "checkpoint-8 holds the replayed state, bit for bit");
  }
  EXPECT_TRUE(content_of(out) == before) << "a replay writes nothing";
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(Replay, OtherDataAndMissingRecordsAreRefused) {
  const Scratch scratch;
  ASSERT_EQ(run(scratch, run_to_replay(scratch, {"--max_steps", "5"})).exit_code, 0);
  const std::string out = (scratch / "out").string();
  const Ended later = replay(scratch, out, {"--update", "2", "--checkpoint", out + "/checkpoint-4"});
  EXPECT_EQ(later.exit_code, 2);
  expect_replay_says(later.err, "was taken after update 4, which is not before --update 2");

  std::string rows = read_file(scratch / "data/train.jsonl");
  const size_t digit = rows.find_first_of("0123456789");
  rows[digit] = rows[digit] == '9' ? '8' : static_cast<char>(rows[digit] + 1);
  write_file_atomically(scratch / "data/train.jsonl", rows);
  const Ended other_data = replay(scratch, out, {});
  EXPECT_EQ(other_data.exit_code, 2);
  expect_replay_says(other_data.err, "run.data");
  expect_replay_says(other_data.err, "put the files back");

  const Ended unknown = replay(scratch, out, {"--update", "77"});
  EXPECT_EQ(unknown.exit_code, 2);
  expect_replay_says(unknown.err, "no such update");
  for (int64_t update = 1; update <= 5; ++update) change_line(out, update, [](Json& line) { line.erase("block_hashes"); });
  const Ended no_hashes = replay(scratch, out, {});
  EXPECT_EQ(no_hashes.exit_code, 3);
  expect_replay_says(no_hashes.err, "none of its updates has hashes of the blocks");
}

TEST(Replay, FindsWhatWasDamaged) {
  const Scratch scratch;
  ASSERT_EQ(run(scratch, run_to_replay(scratch, {"--max_steps", "8"})).exit_code, 0);
  const auto copy = [&](const std::string& name) {
    fs::copy(scratch / "out", scratch / name, fs::copy_options::recursive);
    return (scratch / name).string();
  };
  const std::string part = "optimizer/part-0-of-1.safetensors";

  const std::string weight = copy("weight");
  damage(weight + "/checkpoint-4", "model.safetensors", "bert.encoder.layer.0.output.dense.weight", true);
  const Ended other_weight = replay(scratch, weight, {"--update", "6"});
  EXPECT_EQ(other_weight.exit_code, 8);
  expect_replay_says(other_weight.err, "checkpoint-4 does not hold the weights that " + weight + " logged for update 4");
  expect_replay_says(other_weight.err, "\n    layer 0 ");
  EXPECT_EQ(other_weight.err.find("\n    layer 1 "), std::string::npos) << other_weight.err;

  const std::string moment = copy("moment");
  damage(moment + "/checkpoint-4", part, "bert.encoder.layer.1.output.dense.weight.exp_avg", true);
  const Ended other_moment = replay(scratch, moment, {"--update", "6", "--nproc_per_node", "2"});
  EXPECT_EQ(other_moment.exit_code, 8);
  expect_replay_says(other_moment.err, "lockstep: rank 0 (");
  expect_replay_says(other_moment.err, "update 5 gives other bits than " + moment + " logged");
  expect_replay_says(other_moment.err, "\n    layer 1 ");
  EXPECT_EQ(other_moment.err.find("\n    layer 0 "), std::string::npos) << other_moment.err;
  expect_replay_says(other_moment.err, "Loss and gradients' norm are the logged ones");
  const Ended from_before = replay(scratch, moment, {"--update", "4"});
  EXPECT_EQ(from_before.exit_code, 8);
  expect_replay_says(from_before.err, "layer 1      exp_avg of bert.encoder.layer.1.output.dense.weight: 1 of 6144 elements");

  const std::string disk = copy("disk");
  damage(disk + "/checkpoint-4", part, "bert.encoder.layer.1.output.dense.weight.exp_avg", false);
  const Ended damaged = replay(scratch, disk, {"--update", "6"});
  EXPECT_EQ(damaged.exit_code, 3);
  expect_replay_says(damaged.err, part);

  const std::string logged = copy("logged");
  change_line(logged, 7, [](Json& line) { line["block_hashes"][0] = "0123456789abcdef"; });
  const Ended other_log = replay(scratch, logged, {});
  EXPECT_EQ(other_log.exit_code, 8);
  expect_replay_says(other_log.err, "update 7 gives other bits");
  expect_replay_says(other_log.err, "\n    embedding    0123456789abcdef ");
  expect_replay_says(other_log.err, "Before it, updates 5 to 6 had the logged bits.");
}

/// A model whose files lie in the scratch folder.
std::vector<std::string> own_model(const Scratch& scratch, const std::vector<std::string>& more) {
  fs::copy(kTinyModels / "bert", scratch / "model", fs::copy_options::recursive);
  std::vector<std::string> words = {"--model_name_or_path", (scratch / "model").string()};
  words.insert(words.end(), more.begin(), more.end());
  return run_to_replay(scratch, words);
}

TEST(Replay, OtherModelFilesAreToldBeforeBitsAreCompared) {
  const Scratch scratch;
  ASSERT_EQ(run(scratch, own_model(scratch, {"--max_steps", "5"})).exit_code, 0);
  const std::string out = (scratch / "out").string();
  damage(scratch / "model", "model.safetensors", "bert.encoder.layer.1.output.dense.weight", false);
  const Ended beginning = replay(scratch, out, {"--checkpoint", "start", "--nproc_per_node", "2"});
  EXPECT_EQ(beginning.exit_code, 2);
  expect_replay_says(beginning.err, "the weights in the model's folder are not those that " + out + " began with: 1 of 4 blocks differ "
                                    "(layer 1). Put the model's files back");
  EXPECT_EQ(beginning.err.find("gives other bits"), std::string::npos) << beginning.err;
  const Ended from_checkpoint = replay(scratch, out, {});
  EXPECT_EQ(from_checkpoint.exit_code, 0) << "it does not need the model's weights\n" << from_checkpoint.err;
  expect_replay_says(from_checkpoint.err, "(layer 1); the replay takes those of " + out + "/checkpoint-4");
}

TEST(Replay, OtherKernelsAreToldBeforeBitsAreCompared) {
  const Scratch scratch;
  ASSERT_EQ(run(scratch, run_to_replay(scratch, {"--max_steps", "5"})).exit_code, 0);
  const std::string out = (scratch / "out").string();
  const Ended same = replay(scratch, out, {});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.err.find("kernels"), std::string::npos) << same.err;
  // As a run on another processor would have recorded it; here all comes out as it was all the same.
  const fs::path record = scratch / "out/checkpoint-5/run.json";
  std::string text = read_file(record);
  const std::string hash = read_json(record)["kernels"]["gelu"];
  text.replace(text.find(hash), hash.size(), "0123456789abcdef");
  write_file_atomically(record, text);
  const Ended other = replay(scratch, out, {});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  expect_replay_says(other.err, "warning      other kernels than the run's: gelu gives other bits here");
  change_line(out, 5, [](Json& line) { line["block_hashes"][0] = "0123456789abcdef"; });
  const Ended differs = replay(scratch, out, {});
  EXPECT_EQ(differs.exit_code, 8);
  expect_replay_says(differs.err, "- There are other kernels than the run's: gelu gives other bits here");
}

TEST(Replay, WorksWhileTheRunGoesOn) {
  const Scratch scratch, aside;
  Command command(scratch, run_to_replay(scratch, {"--num_train_epochs", "2000", "--save_steps", "4"}));
  const Deadline deadline = Deadline::in(std::chrono::seconds(30));
  while (lines_of(scratch / "out/metrics.jsonl").size() < 6 && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const Ended ended = replay(aside, (scratch / "out").string(), {"--update", "3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "Updates 1 to 3 give the logged bits\n");
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().exit_code, 75) << "it was going on";
}

TEST(Replay, KnowsSft) {
  const Scratch scratch;
  ASSERT_EQ(run(scratch, sft_args(scratch, {"--max_steps", "3", "--save_steps", "2", "--per_device_train_batch_size", "6"})).exit_code, 0);
  const Ended ended = replay(scratch, (scratch / "out").string(), {"--nproc_per_node", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "Update 3 gives the logged bits\n");
}

}  // namespace
}  // namespace lockstep::cli
