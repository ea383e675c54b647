#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::recipes {

/// Everything `lockstep generate` can be told. Names are those of transformers' GenerationConfig where it has them. visit()
/// is written in the words of options/field.h.
struct GenerateOptions {
  std::optional<std::string> model_name_or_path;
  std::string dtype = "auto";

  std::optional<std::vector<std::string>> prompt;
  std::optional<std::string> file, output_file;
  bool chat = false;
  std::optional<std::string> system, chat_template_path;

  int64_t max_new_tokens = 256;
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  std::optional<std::vector<std::string>> stop_strings;
  bool ignore_eos = false;
  int64_t seed = 42;
  int64_t batch_size = 8;
  std::optional<int64_t> threads;

  template <class V>
  void visit(V& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "The model's folder, as lockstep sft or Hugging Face stores it.").unit("path");
    v("dtype", dtype, "Type of the computation; auto: as the model is stored, float32 for float16.")
        .choices({"auto", "float32", "bfloat16"});
    v.group("What to continue");
    v("prompt", prompt, "One text or several; each is continued on its own.");
    v("file", file, "JSON lines with prompt (a text, or messages) or messages; one JSON line is written for each.").unit("path");
    v("output_file", output_file, "Where the lines of --file go.").unit("path").unset("standard output");
    v("chat", chat, "Prompts are what a user says, put in the model's chat template. Without prompts: a conversation in the terminal.");
    v("system", system, "System message of each chat.").unset("none");
    v("chat_template_path", chat_template_path, "A Jinja file in place of the model's chat template.").unit("path").unset("the model's");
    v.group("How");
    v("max_new_tokens", max_new_tokens, "The most tokens of each completion.").unit("tokens").at_least(1).at_most(1 << 20);
    v("temperature", temperature, "0: always the likeliest token; above: sample from logits divided by it.").at_least(0);
    v("top_k", top_k, "Sample among so many of the likeliest tokens; 0: all.").at_least(0);
    v("top_p", top_p, "Sample among the likeliest tokens whose probabilities reach this sum.").above(0).at_most(1);
    v("min_p", min_p, "Leave out tokens less likely than this share of the likeliest.").at_least(0).at_most(1);
    v("repetition_penalty", repetition_penalty, "Above 1: tokens that are there already become less likely.").above(0);
    v("stop_strings", stop_strings, "Texts at which a completion ends; they are left out.");
    v("ignore_eos", ignore_eos, "Go on after the tokens that end a text.");
    v("seed", seed, "Of the sampling; a text depends on it, the model and its own prompt's number alone.").at_least(0);
    v("batch_size", batch_size, "Sequences continued together. Cannot be seen in the texts.").at_least(1).at_most(4096);
    v("threads", threads, "Threads. Cannot be seen in the texts.").unset("one for every core").at_least(1).at_most(4096);
  }
};

}  // namespace lockstep::recipes
