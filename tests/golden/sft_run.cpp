#include "golden/sft_run.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>

namespace lockstep::golden {
namespace {

using nlohmann::json;

std::vector<json> parse_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

/// The exit status, or 128 + signal. Output and errors go to `log`.
int run_program(std::vector<std::string> command, const fs::path& log) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int problem = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) throw Error::environment("{} cannot be started: {}", command[0], std::strerror(problem));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw Error::internal("waitpid: {}", std::strerror(errno));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

UpdateLine update_line(const json& line) {
  return {.loss = line.at("loss"),
          .grad_norm = line.at("grad_norm"),
          .learning_rate = line.at("learning_rate"),
          .entropy = line.at("entropy"),
          .mean_token_accuracy = line.at("mean_token_accuracy"),
          .balance = line.at("balance"),
          .num_tokens = line.at("num_tokens"),
          .block_hashes = line.at("block_hashes")};
}

}  // namespace

fs::path smollm2() {
  const char* given = std::getenv("LOCKSTEP_SMOLLM2");
  const fs::path folder = given != nullptr ? given : LOCKSTEP_SMOLLM2_DEFAULT;
  if (!fs::exists(folder / "model.safetensors")) {
    throw Error::environment("{} has no model.safetensors. Run scripts/fetch-smollm2 {}, or set LOCKSTEP_SMOLLM2 to "
                             "the folder that has SmolLM2-135M-Instruct.",
                             folder.string(), folder.string());
  }
  return folder;
}

std::string gsm8k_chats() {
  std::string chats;
  for (const json& row : parse_lines(read_file(LOCKSTEP_TEST_DATA "/gsm8k/test.jsonl"))) {
    const json messages = {{{"role", "user"}, {"content", row.at("question")}},
                           {{"role", "assistant"}, {"content", row.at("answer")}}};
    chats += json({{"messages", messages}}).dump() + "\n";
  }
  return chats;
}

SftRun::SftRun(std::vector<std::string> flags) {
  std::vector<std::string> command = {LOCKSTEP_BIN_DIR "/lockstep",  "sft",
                                      "--model_name_or_path",        smollm2().string(),
                                      "--output_dir",                (folder_.path() / "out").string()};
  command.insert(command.end(), flags.begin(), flags.end());
  const fs::path log = folder_.path() / "log";
  const int status = run_program(std::move(command), log);
  if (status != 0) throw Error::internal("lockstep sft ended with {}:\n{}", status, read_file(log));
  for (const json& line : parse_lines(read_file(file("metrics.jsonl")))) updates_.push_back(update_line(line));
}

}  // namespace lockstep::golden
