// Starts that a careful user never makes: closed descriptors, folders that are gone, words that are no text.
#include "command.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>

namespace lockstep::cli {
namespace {

/// A tiny run typed into a shell in `scratch`; `more` comes after the command's words, `start` before them.
int shell(const Scratch& scratch, const std::string& before, const std::string& flags, const std::string& more,
          const std::string& start = {}) {
  const std::string starts = start.empty() ? "TMPDIR=" + (scratch / "tmp").string() + " timeout 60" : start;
  const std::string command = fmt::format(
      "cd {0} && {1} {7} {2} sft --model_name_or_path {3} --dataset_name {4} --max_length 64 --max_steps 1 "
      "--per_device_train_batch_size 4 --nproc_per_node 1 {5} {6}",
      scratch.path().string(), before, LOCKSTEP_BIN_DIR "/lockstep", (kTinyModels / "llama").string(), kChats.string(), flags,
      more, starts);
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StrangeStart, ClosedDescriptorsAreNoReasonToHang) {
  for (const char* closed : {"2>&- >&-", "2>&- <&-", "<&- >&- 2>&-", "2>&-"}) {
    const Scratch scratch;
    EXPECT_EQ(shell(scratch, "", "--output_dir out", closed), 0) << closed;
    EXPECT_TRUE(fs::exists(scratch / "out" / "model.safetensors")) << closed;
  }
  const Scratch scratch;
  EXPECT_EQ(shell(scratch, "", "--bad", "2>&-"), 2) << "a usage error without anyone to tell";
}

/// Each process of an outer launcher would be a whole job in the same output folder.
TEST(StrangeStart, AnOuterLauncherIsNoticed) {
  const Scratch scratch;
  const std::string err = (scratch / "err").string();
  const std::string bounds = "TMPDIR=" + (scratch / "tmp").string() + " timeout 60";
  EXPECT_EQ(shell(scratch, "", "--output_dir out", "2>" + err, bounds + " env RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"), 2);
  for (const char* part : {"one of 2 processes (RANK = 1, WORLD_SIZE = 2", "drop the outer `lockstep run` or torchrun", "--nproc_per_node"}) {
    EXPECT_NE(read_file(err).find(part), std::string::npos) << read_file(err);
  }
  EXPECT_FALSE(fs::exists(scratch / "out"));
  EXPECT_EQ(shell(scratch, "", "--output_dir one", "2>" + err, bounds + " env RANK=0 WORLD_SIZE=1 TORCHELASTIC_RUN_ID=x"), 0)
      << "one process is no group: " << read_file(err);
  EXPECT_EQ(shell(scratch, "", "--output_dir odd", "2>" + err, bounds + " env WORLD_SIZE=2"), 0) << "no rank: nobody started a group";
}

TEST(DryRun, TellsOfModelAndDataBeforeItsOptions) {
  const Scratch scratch;
  const fs::path both = scratch / "both";
  ASSERT_EQ(shell(scratch, "", "--output_dir out --dry_run", ">" + both.string() + " 2>&1"), 0);
  const std::string text = read_file(both);
  const size_t model = text.find("LlamaForCausalLM"), options = text.find("per_device_train_batch_size"), end = text.find("Dry run:");
  EXPECT_LT(model, options) << text;
  EXPECT_LT(options, end) << text;
  EXPECT_NE(end, std::string::npos) << text;
}

TEST(StrangeStart, TheCurrentFolderMayBeGone) {
  const Scratch scratch;
  const fs::path err = scratch / "err";
  EXPECT_EQ(shell(scratch, "mkdir gone && cd gone && rmdir ../gone &&",
                  "--output_dir " + (scratch / "out").string(), "2>" + err.string()),
            4);
  EXPECT_NE(read_file(err).find("the current folder"), std::string::npos) << read_file(err);
}

TEST(StrangeStart, AWordThatIsNoTextIsRefused) {
  const Scratch scratch;
  const fs::path err = scratch / "err";
  EXPECT_EQ(shell(scratch, "", "--output_dir \"$(printf 'b\\377')\"", "2>" + err.string()), 2);
  EXPECT_NE(read_file(err).find("UTF-8"), std::string::npos) << read_file(err);
}

TEST(StrangeStart, ALinkToNothingInTheDataIsNamed) {
  const Scratch scratch;
  fs::create_directories(scratch / "data");
  fs::copy(kChats, scratch / "data" / "chats.jsonl");
  fs::create_symlink("nowhere", scratch / "data" / "train.jsonl");
  const Ended ended = run(scratch, sft_args(scratch, {"--dataset_name", (scratch / "data").string()}));
  EXPECT_EQ(ended.exit_code, 3) << ended.err;
  EXPECT_NE(ended.err.find("train.jsonl: looks like data but cannot be read (a link to nothing)"), std::string::npos)
      << ended.err;
}

TEST(StrangeStart, TheModelsOwnFolderIsNoOutputFolder) {
  const Scratch scratch;
  fs::copy(kTinyModels / "llama", scratch / "model", fs::copy_options::recursive);
  const std::vector<std::string> same = {"--model_name_or_path", (scratch / "model").string(), "--output_dir",
                                         (scratch / "model" / ".").string()};
  const std::string before = read_file(scratch / "model" / "model.safetensors");
  const Ended ended = run(scratch, sft_args(scratch, same));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("is the model's own folder"), std::string::npos) << ended.err;
  EXPECT_TRUE(read_file(scratch / "model" / "model.safetensors") == before);
}

TEST(StrangeStart, TheModelsOwnFolderIsKnownByAPathThatIsNotThereYet) {
  const Scratch scratch;
  fs::copy(kTinyModels / "llama", scratch / "model", fs::copy_options::recursive);
  const std::string before = read_file(scratch / "model" / "model.safetensors");
  const Ended ended = run(scratch, sft_args(scratch, {"--model_name_or_path", (scratch / "model").string(), "--output_dir",
                                                      scratch.path().string() + "/none/../model"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("is the model's own folder"), std::string::npos) << ended.err;
  EXPECT_TRUE(read_file(scratch / "model" / "model.safetensors") == before);
}

TEST(StrangeStart, ACheckpointOfTheOutputFolderIsNoModelToStartFrom) {
  const Scratch scratch;
  fs::create_directories(scratch / "out");
  fs::copy(kTinyModels / "llama", scratch / "out" / "checkpoint-2", fs::copy_options::recursive);
  fs::create_directory_symlink("out", scratch / "link");
  const std::string before = read_file(scratch / "out" / "checkpoint-2" / "model.safetensors");
  for (const char* folder : {"out", "link", "out/none/.."}) {
    const Ended ended = run(scratch, sft_args(scratch, {"--model_name_or_path", (scratch / "out" / "checkpoint-2").string(),
                                                        "--output_dir", scratch.path().string() + "/" + folder}));
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_NE(ended.err.find("which a checkpoint of this run may replace"), std::string::npos) << ended.err;
  }
  EXPECT_TRUE(read_file(scratch / "out" / "checkpoint-2" / "model.safetensors") == before);
}

TEST(StrangeStart, AMistakeInAnArgumentOfAnArgumentIsToldBeforeWorkersStart) {
  const Scratch scratch;
  const Ended ended = run(scratch, sft_args(scratch, {"--optim", "sgd", "--optim_args", "momentun=0.9"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("momentum"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("rank"), std::string::npos) << ended.err;
}

TEST(StrangeStart, AMalformedEndpointIsToldAtOnce) {
  const std::string model = (kTinyModels / "llama").string();
  const auto classify = [&](const Scratch& scratch) {
    return std::vector<std::string>{"classify", "--model_name_or_path", model, "--train_file",
                                    scratch.write("rows.csv", "text,label\na,0\nb,1\n").string(), "--output_dir",
                                    (scratch / "out").string()};
  };
  for (const auto& [endpoint, says] : {std::pair{"[::1", "is not host:port"}, {":29500", "is not host:port"},
                                       {"n0:0", "port 0"}, {"n0:70000", "'70000' is not a port"},
                                       {"n0:29500x", "'29500x' is not a port"}, {"n0:1:2", "is not host:port"}}) {
    const std::vector<std::string> meets = {"--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint};
    const Scratch scratch;
    std::vector<std::vector<std::string>> commands = {{"run"}, sft_args(scratch), classify(scratch)};
    for (std::vector<std::string>& words : commands) words.insert(words.end(), meets.begin(), meets.end());
    commands[0].push_back("/bin/true");
    commands.push_back({"doctor", "--rdzv_endpoint", endpoint});
    for (const std::vector<std::string>& words : commands) {
      const Ended ended = Command(scratch, words).wait(std::chrono::seconds(10));
      EXPECT_EQ(ended.exit_code, 2) << words[0] << " " << endpoint << "\n" << ended.err;
      EXPECT_NE(ended.err.find(says), std::string::npos) << words[0] << " " << endpoint << "\n" << ended.err;
    }
  }
}

TEST(StrangeStart, ATemporaryFolderThatCannotBeUsedIsNamed) {
  for (const char* folder : {"/nowhere/tmp", "/proc"}) {
    const Scratch scratch;
    const std::string start = fmt::format("TMPDIR={} timeout 60", folder);
    const fs::path err = scratch / "err";
    EXPECT_EQ(shell(scratch, "", "--output_dir out", "2>" + err.string(), start), 4);
    const std::string trained = read_file(err);
    EXPECT_NE(trained.find(fmt::format("TMPDIR = '{}'", folder)), std::string::npos) << trained;
    EXPECT_NE(trained.find("Set TMPDIR to a folder"), std::string::npos) << trained;
    const std::string run = fmt::format("{} {} run --redirects 3 /bin/true 2> {}", start, LOCKSTEP_BIN_DIR "/lockstep",
                                        err.string());
    EXPECT_EQ(std::system(run.c_str()), 0) << "a program needs no logs";
    const std::string ran = read_file(err);
    EXPECT_NE(ran.find(fmt::format("TMPDIR = '{}'", folder)), std::string::npos) << ran;
    EXPECT_NE(ran.find("Set TMPDIR to a short path"), std::string::npos) << ran;
  }
}

TEST(StrangeStart, AMissingInterpreterIsNamed) {
  const Scratch scratch;
  const auto said_of = [&](const std::string& first_line) {
    const fs::path script = scratch.write("script", first_line + "\necho hello\n");
    fs::permissions(script, fs::perms::owner_all);
    const Ended ended = run(scratch, {"run", script.string()});
    EXPECT_EQ(ended.exit_code, 4) << ended.err;
    return ended.err;
  };
  for (const char* line : {"#!/nowhere/bin/python9", "#! /nowhere/bin/python9 -u"}) {
    const std::string said = said_of(line);
    EXPECT_NE(said.find("names the interpreter /nowhere/bin/python9, which does not exist"), std::string::npos) << said;
  }
  EXPECT_NE(said_of("#!/etc/passwd").find("the interpreter /etc/passwd, which may not be executed"), std::string::npos);
  EXPECT_NE(said_of("#!/bin/sh\r").find("ends in a carriage return"), std::string::npos);
}

/// Of lockstep with another program in its worker's place.
Ended run_with_worker(const Scratch& scratch, const std::string& worker) {
  fs::create_directory(scratch / "bin");
  fs::copy_file(LOCKSTEP_BIN_DIR "/lockstep", scratch / "bin" / "lockstep");
  fs::create_symlink(worker, scratch / "bin" / "lockstep-worker");
  return Command(scratch, sft_args(scratch, {"--nproc_per_node", "2"}), {}, scratch / "bin" / "lockstep").wait();
}

TEST(StrangeStart, AWorkerThatLeavesAtOnceIsNamed) {
  const Scratch scratch;
  const Ended ended = run_with_worker(scratch, "/bin/true");
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  EXPECT_NE(ended.err.find("failed first: Environment error"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("it left with status 0 before it had done"), std::string::npos) << ended.err;
  EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
}

TEST(StrangeStart, RecordsOfAnEarlierRunInTheDatasFolderAreNoData) {
  const Scratch scratch;
  fs::create_directory(scratch / "out");
  fs::copy_file(kChats, scratch / "out" / "chats.jsonl");
  const std::vector<std::string> same = {"--dataset_name", (scratch / "out").string(), "--overwrite_output_dir"};
  const auto rows = [&](const Ended& ended) {
    const size_t at = ended.err.find(" of kind messages");
    return at == std::string::npos ? ended.err : ended.err.substr(at - 4, 40);
  };
  const Ended first = run(scratch, sft_args(scratch, same));
  EXPECT_EQ(first.exit_code, 0) << first.err;
  ASSERT_TRUE(fs::exists(scratch / "out" / "train_results.json"));
  const Ended second = run(scratch, sft_args(scratch, same));
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(rows(first), rows(second));
}

/// What starts killed at different moments have left behind, and what the next start of the same kind leaves of it.
TEST(StrangeStart, WhatAStartThatWasKilledLeftIsSweptOutByTheNext) {
  const Scratch scratch;
  const std::vector<std::string> sft = sft_args(scratch), program = {"run", "--nproc_per_node", "2", "/bin/sleep", "0.2"};
  for (const std::vector<std::string>& words : {sft, program}) {
    size_t num_killed = 0;
    for (int ms = 0; ms <= 24; ms += 3) {
      for (const char* name : {"stdout.txt", "stderr.txt"}) scratch.write(name, "");  // it may not come so far
      Command command(scratch, words);
      std::this_thread::sleep_for(Milliseconds(ms));  // the moment is what is varied
      command.signal(SIGKILL);
      num_killed += command.wait().exit_code == 128 + SIGKILL ? 1 : 0;
    }
    EXPECT_GT(num_killed, 0u);
    for (const fs::directory_entry& entry : fs::directory_iterator(scratch / "tmp")) {
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::minutes(5));
    }
    EXPECT_EQ(run(scratch, words).exit_code, 0);
    EXPECT_EQ(scratch.leftovers(), "") << words[0];
  }
}

TEST(StrangeStart, AConfigurationIsOneDocument) {
  const Scratch scratch;
  const fs::path file = scratch.write("run.yaml", "seed: 3\n---\nseed: 4\n");
  const Ended ended = run(scratch, sft_args(scratch, {"--config", file.string()}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("run.yaml:3"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace lockstep::cli
