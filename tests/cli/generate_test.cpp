// lockstep generate as a user starts it.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::cli {
namespace {

std::vector<std::string> speaking(const fs::path& model, const std::vector<std::string>& more) {
  std::vector<std::string> args = {"generate", "--model_name_or_path", model.string(), "--max_new_tokens", "12"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Generate, EveryPromptHasTheSameTextInEveryBatchAndTeam) {
  const Scratch scratch;
  std::string rows;
  for (const std::string& line : lines_of(kChats)) rows += "{\"prompt\": " + Json::parse(line)["messages"][0]["content"].dump() + "}\n";
  const std::string file = scratch.write("prompts.jsonl", rows).string();
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"--file", file, "--temperature", "0.9", "--top_p", "0.9"};
    args.insert(args.end(), more.begin(), more.end());
    const Ended ended = run(scratch, speaking(kTinyModels / "llama", args));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  const std::string simplest = said({"--batch_size", "1", "--threads", "1"});
  EXPECT_EQ(std::count(simplest.begin(), simplest.end(), '\n'), 96);
  EXPECT_EQ(said({"--batch_size", "7", "--threads", "2"}), simplest);
  EXPECT_EQ(said({"--batch_size", "96", "--output_file", (scratch / "said.jsonl").string()}), "");
  EXPECT_EQ(read_file(scratch / "said.jsonl"), simplest);
  EXPECT_NE(said({"--seed", "1"}), simplest);
}

TEST(Generate, StopsAtStringsAndChatsByTheTemplate) {
  const Scratch scratch;
  const Ended whole = run(scratch, speaking(kTinyModels / "qwen3", {"--chat", "--prompt", "Hello", "--ignore_eos"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_GT(whole.out.size(), 6u);
  // Two bytes from the middle of the text, where it is plain ASCII.
  size_t at = 1;
  while (at + 2 < whole.out.size() && !(std::isalnum(whole.out[at]) && std::isalnum(whole.out[at + 1]))) ++at;
  const std::string stop = whole.out.substr(at, 2);
  const Ended cut = run(scratch, speaking(kTinyModels / "qwen3", {"--chat", "--prompt", "Hello", "--ignore_eos", "--stop_strings", stop}));
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_EQ(cut.out, whole.out.substr(0, whole.out.find(stop)) + "\n");
  const Ended plain = run(scratch, speaking(kTinyModels / "qwen3", {"--prompt", "Hello", "--ignore_eos"}));
  EXPECT_NE(plain.out, whole.out) << "the template adds to the prompt";
}

TEST(Generate, SaysWhatIsWrongWithItsInput) {
  struct Row {
    std::vector<std::string> args;
    std::vector<std::string> said;
    int code;
  };
  const Scratch scratch;
  const std::string rows = scratch.write("rows.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n").string();
  const std::string none = scratch.write("none.jsonl", "\n").string();
  const std::string messages = scratch.write("messages.jsonl", "{\"messages\": \"hello\"}\n").string();
  const std::string llama = (kTinyModels / "llama").string(), gpt2 = (kTinyModels / "gpt2").string();
  const std::vector<Row> table = {
      {{}, {"missing --model_name_or_path", "nothing to continue"}, 2},
      {{"--model_name_or_path", llama}, {"nothing to continue", "--prompt"}, 2},
      {{"--model_name_or_path", llama, "--chat"}, {"conversation in a terminal", "--file"}, 2},
      {{"--model_name_or_path", llama, "--prompt", "a", "--file", rows}, {"exclude each other"}, 2},
      {{"--model_name_or_path", llama, "--prompt", ""}, {"is empty"}, 2},
      {{"--model_name_or_path", llama, "--prompt", "a", "--top_p", "0.9"}, {"top_p = 0.9", "--temperature"}, 2},
      {{"--model_name_or_path", llama, "--prompt", "a", "--temperature", "-1"}, {"temperature = -1"}, 2},
      {{"--model_name_or_path", llama, "--prompt", "a", "--temprature", "1"}, {"temprature", "temperature"}, 2},
      {{"--model_name_or_path", llama, "--prompt", "a", "--output_file", "x"}, {"output_file = x", "--file"}, 2},
      {{"--model_name_or_path", "/nowhere", "--prompt", "a"}, {"/nowhere", "no such folder"}, 3},
      {{"--model_name_or_path", llama, "--file", "/nowhere.jsonl"}, {"/nowhere.jsonl"}, 3},
      {{"--model_name_or_path", llama, "--file", rows}, {"rows.jsonl:2", "neither prompt nor messages"}, 3},
      {{"--model_name_or_path", llama, "--file", none}, {"none.jsonl", "no row"}, 3},
      {{"--model_name_or_path", llama, "--file", messages}, {"messages.jsonl:1", "list of messages"}, 3},
      {{"--model_name_or_path", gpt2, "--chat", "--prompt", "a"}, {"has no chat template", "--chat_template_path"}, 3},
      {{"--model_name_or_path", gpt2, "--prompt", "a", "--max_new_tokens", "500"}, {"128 positions", "--max_new_tokens"}, 3},
      {{"--model_name_or_path", (kTinyModels / "bert").string(), "--prompt", "a"}, {"architectures", "Nearest"}, 3},
  };
  for (const Row& row : table) {
    std::vector<std::string> args = {"generate"};
    args.insert(args.end(), row.args.begin(), row.args.end());
    const Ended ended = run(scratch, args);
    EXPECT_EQ(ended.exit_code, row.code) << ended.err;
    EXPECT_EQ(ended.out, "");
    for (const std::string& part : row.said) EXPECT_NE(ended.err.find(part), std::string::npos) << part << " not in: " << ended.err;
  }
}

TEST(Generate, HelpTeachesAndADryRunTells) {
  const Scratch scratch;
  const Ended help = run(scratch, {"generate", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* part : {"Examples", "--temperature", "--file prompts.jsonl", "\"completion\""})
    EXPECT_NE(help.out.find(part), std::string::npos) << part;
  const Ended dry = run(scratch, speaking(kTinyModels / "llama", {"--prompt", "a", "--dry_run"}));
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_NE(dry.out.find("max_new_tokens"), std::string::npos) << dry.out;
}

}  // namespace
}  // namespace lockstep::cli
