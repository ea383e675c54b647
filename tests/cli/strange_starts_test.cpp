// Starts that a careful user never makes: closed descriptors, folders that are gone, words that are no text.
#include "command.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include <sys/wait.h>

namespace lockstep::cli {
namespace {

/// A tiny run typed into a shell in `scratch`; `more` comes after the command's words.
int shell(const Scratch& scratch, const std::string& before, const std::string& flags, const std::string& more) {
  const std::string command = fmt::format(
      "cd {0} && {1} TMPDIR={0}/tmp timeout 60 {2} sft --model_name_or_path {3} --dataset_name {4} --max_length 64 --max_steps 1 "
      "--per_device_train_batch_size 4 --nproc_per_node 1 {5} {6}",
      scratch.path().string(), before, LOCKSTEP_BIN_DIR "/lockstep", (kTinyModels / "llama").string(), kChats.string(), flags,
      more);
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

TEST(StrangeStart, AMistakeInAnArgumentOfAnArgumentIsToldBeforeWorkersStart) {
  const Scratch scratch;
  const Ended ended = run(scratch, sft_args(scratch, {"--optim", "sgd", "--optim_args", "momentun=0.9"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("momentum"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("rank"), std::string::npos) << ended.err;
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
