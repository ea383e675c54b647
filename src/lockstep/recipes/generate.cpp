#include "lockstep/recipes/generate.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/model/config.h"
#include "lockstep/model/decoder.h"
#include "lockstep/model/weights.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/json_lines.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/generator.h"
#include "lockstep/train/settings.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

namespace lockstep::recipes {
namespace {

using GenerateJson = nlohmann::ordered_json;

/// The model with its texts.
struct Speaker {
  fs::path folder;
  model::DecoderConfig config;
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  tensor::ParamLayout layout;
  tensor::ParamStore params;
  train::GenerationOptions how;
  std::vector<std::string> stop_strings;
};

at::ScalarType dtype_of_computation(const GenerateOptions& options, const model::DecoderConfig& config) {
  const std::string& name = options.dtype == "auto" ? config.stored_dtype : options.dtype;
  return name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

/// generation_config.json's, which is a number or a list, or else the tokenizer's.
std::vector<int32_t> end_ids_of(const fs::path& folder, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const fs::path file = folder / "generation_config.json";
  if (fs::exists(file)) {
    const GenerateJson json = GenerateJson::parse(read_file(file), nullptr, false);
    if (!json.is_object()) throw Error::data("{}: is no JSON object. Correct it, or remove it: the tokenizer names an eos token too.", file.string());
    const GenerateJson entry = json.value("eos_token_id", GenerateJson());
    for (const GenerateJson& id : entry.is_array() ? entry : GenerateJson::array({entry})) {
      if (id.is_null()) continue;
      if (!id.is_number_integer()) throw Error::data("{}: eos_token_id = {}: must be a token's number, or a list of them. Correct it.", file.string(), entry.dump());
      ids.push_back(id.get<int32_t>());
    }
  }
  if (tokenizer.eos_id()) ids.push_back(*tokenizer.eos_id());
  return ids;
}

std::optional<text::ChatTemplate> load_template(const GenerateOptions& options, const text::Tokenizer& tokenizer) {
  if (options.chat_template_path) return text::ChatTemplate(read_file(*options.chat_template_path), *options.chat_template_path);
  const std::optional<std::string> source = tokenizer.chat_template();
  if (!source) return std::nullopt;
  return text::ChatTemplate(*source, "the chat template of " + tokenizer.folder().string());
}

Speaker load_speaker(const GenerateOptions& options, ThreadTeam& team) {
  const fs::path folder = *options.model_name_or_path;
  const tensor::WeightFiles weights = tensor::WeightFiles::open(folder);
  model::DecoderConfig config = model::read_decoder_config(folder);
  text::Tokenizer tokenizer = text::Tokenizer::from_folder(folder);
  tensor::ParamLayout layout(model::Decoder::param_specs(config));
  tensor::ParamStore params(layout, dtype_of_computation(options, config), 1);
  model::load_weights(layout, weights, config.tie_word_embeddings,
                      [&](tensor::ParamId id, const at::Tensor& stored) { at::Tensor(params.weight(id)).copy_(stored); }, &team);
  train::GenerationOptions how{.max_new_tokens = options.max_new_tokens,
                               .batch_size = options.batch_size,
                               .end_ids = options.ignore_eos ? std::vector<int32_t>{} : end_ids_of(folder, tokenizer),
                               .sampling = {.temperature = options.temperature,
                                            .top_k = options.top_k,
                                            .top_p = options.top_p,
                                            .min_p = options.min_p,
                                            .repetition_penalty = options.repetition_penalty,
                                            .seed = static_cast<uint64_t>(options.seed)}};
  std::optional<text::ChatTemplate> chat_template = load_template(options, tokenizer);
  return {folder,          std::move(config), std::move(tokenizer), std::move(chat_template), std::move(layout), std::move(params),
          std::move(how),  options.stop_strings.value_or(std::vector<std::string>{})};
}

// ---- prompts ---------------------------------------------------------------

/// `where` names the prompt in messages.
void check_prompt(const Speaker& speaker, const std::vector<int32_t>& ids, const std::string& where) {
  if (ids.empty()) throw Error::data("{}: has no token. Give some text.", where);
  for (const int32_t id : ids)
    if (id >= speaker.config.vocab_size)
      throw Error::data("{}: token {} is outside the model's vocabulary of {}. The tokenizer does not fit the model.", where, id,
                        speaker.config.vocab_size);
  const auto length = static_cast<int64_t>(ids.size());
  const int64_t end = length + speaker.how.max_new_tokens, most = speaker.config.max_position_embeddings;
  if (end <= most) return;
  if (speaker.config.learned_positions)
    throw Error::data("{}: {} tokens and {} new ones are more than the {} positions that the model has learned. Lower --max_new_tokens "
                      "to {} or shorten the prompt.", where, length, speaker.how.max_new_tokens, most, std::max<int64_t>(most - length, 0));
  log::warn("generate", "{}: {} tokens and {} new ones reach beyond the {} positions that the model was trained on", where, length,
            speaker.how.max_new_tokens, most);
}

std::vector<int32_t> plain_ids(const Speaker& speaker, const std::string& text, const std::string& where) {
  std::vector<int32_t> ids = speaker.tokenizer.encode(text).ids;
  check_prompt(speaker, ids, where);
  return ids;
}

/// `messages`: a JSON array.
std::vector<int32_t> chat_ids(const Speaker& speaker, const GenerateJson& messages, const std::string& where) {
  if (!speaker.chat_template)
    throw Error::data("{}: {} has no chat template. Give --chat_template_path FILE, or a text without --chat.", where,
                      speaker.folder.string());
  const std::string text = speaker.chat_template
                               ->render(messages.dump(), {.special_tokens = speaker.tokenizer.special_tokens(), .add_generation_prompt = true})
                               .text;
  std::vector<int32_t> ids = speaker.tokenizer.encode(text, {.add_special_tokens = false}).ids;
  check_prompt(speaker, ids, where);
  return ids;
}

GenerateJson message(const std::string& role, const std::string& content) { return {{"role", role}, {"content", content}}; }

GenerateJson conversation(const GenerateOptions& options, const std::optional<std::string>& user) {
  GenerateJson messages = GenerateJson::array();
  if (options.system) messages.push_back(message("system", *options.system));
  if (user) messages.push_back(message("user", *user));
  return messages;
}

// ---- completions -----------------------------------------------------------

/// Where the first stop string begins in `text`.
size_t find_stop(const std::string& text, const std::vector<std::string>& stop_strings) {
  size_t first = std::string::npos;
  for (const std::string& stop : stop_strings) first = std::min(first, text.find(stop));
  return first;
}

std::string completion_text(const Speaker& speaker, const std::vector<int32_t>& ids) {
  std::string text = speaker.tokenizer.decode(ids, true);
  return text.substr(0, find_stop(text, speaker.stop_strings));
}

std::vector<std::string> complete(const Speaker& speaker, const std::vector<train::Prompt>& prompts, ThreadTeam& team) {
  size_t longest = 1;
  for (const train::Prompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
  const model::Decoder decoder(speaker.config, static_cast<int64_t>(longest) + speaker.how.max_new_tokens, speaker.params.compute_dtype());
  std::vector<std::vector<int32_t>> so_far(prompts.size());
  const auto goes_on = [&](size_t prompt, int32_t id) {
    if (speaker.stop_strings.empty()) return true;
    so_far[prompt].push_back(id);
    return find_stop(speaker.tokenizer.decode(so_far[prompt], true), speaker.stop_strings) == std::string::npos;
  };
  std::vector<std::string> out;
  for (const auto& ids : train::generate(decoder, speaker.params, prompts, speaker.how, team, goes_on))
    out.push_back(completion_text(speaker, ids));
  return out;
}

void say_prompts(const GenerateOptions& options, const Speaker& speaker, ThreadTeam& team) {
  std::vector<train::Prompt> prompts;
  for (size_t i = 0; i < options.prompt->size(); ++i) {
    const std::string& text = (*options.prompt)[i];
    const std::string where = fmt::format("prompt {}", i + 1);
    prompts.push_back({options.chat ? chat_ids(speaker, conversation(options, text), where) : plain_ids(speaker, text, where), i});
  }
  const std::vector<std::string> completions = complete(speaker, prompts, team);
  for (size_t i = 0; i < completions.size(); ++i) {
    if (completions.size() > 1) fmt::print("{}==> {}\n", i == 0 ? "" : "\n", (*options.prompt)[i]);
    fmt::print("{}\n", completions[i]);
  }
}

std::vector<int32_t> ids_of_row(const GenerateOptions& options, const Speaker& speaker, const GenerateJson& row, const std::string& where) {
  const char* key = row.contains("prompt") ? "prompt" : "messages";
  if (!row.contains(key)) throw Error::data("{}: has neither prompt nor messages. Give one of them.", where);
  const GenerateJson& given = row[key];
  if (given.is_string() && std::string_view(key) == "prompt") {
    const auto text = given.get<std::string>();
    return options.chat ? chat_ids(speaker, conversation(options, text), where) : plain_ids(speaker, text, where);
  }
  if (!given.is_array() || given.empty()) throw Error::data("{}: {} must be {}a list of messages. Correct it.", where, key, std::string_view(key) == "prompt" ? "a text or " : "");
  GenerateJson messages = conversation(options, std::nullopt);
  for (const GenerateJson& entry : given) messages.push_back(entry);
  return chat_ids(speaker, messages, where);
}

void say_file(const GenerateOptions& options, const Speaker& speaker, ThreadTeam& team) {
  text::JsonLines lines(*options.file);
  std::vector<GenerateJson> rows;
  std::vector<train::Prompt> prompts;
  while (const auto row = lines.next()) {
    rows.push_back(GenerateJson::parse(row->value.json()));
    prompts.push_back({ids_of_row(options, speaker, rows.back(), row->where()), prompts.size()});
  }
  if (rows.empty()) throw Error::data("--file = {}: has no row. Give one JSON object a line.", *options.file);
  const std::vector<std::string> completions = complete(speaker, prompts, team);
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i]["completion"] = completions[i];
    text += rows[i].dump() + "\n";
  }
  if (options.output_file) {
    write_file_atomically(*options.output_file, text);
    fmt::print(stderr, "{} completions are in {}\n", rows.size(), *options.output_file);
  } else {
    fmt::print("{}", text);
  }
}

/// Shows the text that is certain: a token may end within a character, and the beginning of a stop string is not shown.
class Typing {
 public:
  Typing(const Speaker& speaker) : speaker_(speaker) {}
  bool token(int32_t id) {
    ids_.push_back(id);
    const std::string text = speaker_.tokenizer.decode(ids_, true);
    const size_t stop = find_stop(text, speaker_.stop_strings);
    size_t end = stop;
    if (stop == std::string::npos) {
      end = text.size();
      constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
      while (text.substr(0, end).ends_with(kReplacement)) end -= kReplacement.size();
      size_t longest = 0;
      for (const std::string& s : speaker_.stop_strings) longest = std::max(longest, s.size());
      end = longest > 0 ? std::min(end, text.size() - std::min(text.size(), longest - 1)) : end;
    }
    show(text, end);
    return stop == std::string::npos;
  }
  std::string finish() {
    const std::string text = completion_text(speaker_, ids_);
    show(text, text.size());
    fmt::print("\n");
    return text;
  }

 private:
  void show(const std::string& text, size_t end) {
    if (end <= shown_) return;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    if (end <= shown_) return;
    fmt::print("{}", text.substr(shown_, end - shown_));
    std::fflush(stdout);
    shown_ = end;
  }
  const Speaker& speaker_;
  std::vector<int32_t> ids_;
  size_t shown_ = 0;
};

void talk(const GenerateOptions& options, const Speaker& speaker, ThreadTeam& team) {
  fmt::print(stderr, "A conversation with {}. /new begins another, /quit (or Ctrl-D) ends it.\n", speaker.folder.string());
  GenerateJson messages = conversation(options, std::nullopt);
  std::string line;
  for (uint64_t turn = 0;; ++turn) {
    fmt::print("> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/quit") break;
    if (line.empty()) continue;
    if (line == "/new") {
      messages = conversation(options, std::nullopt);
      continue;
    }
    messages.push_back(message("user", line));
    const std::vector<train::Prompt> prompts{{chat_ids(speaker, messages, "the conversation"), turn}};
    const model::Decoder decoder(speaker.config, static_cast<int64_t>(prompts[0].ids.size()) + speaker.how.max_new_tokens,
                                 speaker.params.compute_dtype());
    Typing typing(speaker);
    train::generate(decoder, speaker.params, prompts, speaker.how, team, [&](size_t, int32_t id) { return typing.token(id); });
    messages.push_back(message("assistant", typing.finish()));
  }
}

}  // namespace

void run_generate(const GenerateOptions& options) {
  train::require_bit_stable_settings();
  ThreadTeam team(options.threads ? static_cast<int>(*options.threads) : available_cores());
  const Speaker speaker = load_speaker(options, team);
  if (options.file) return say_file(options, speaker, team);
  if (options.prompt && !options.prompt->empty()) return say_prompts(options, speaker, team);
  talk(options, speaker, team);
}

}  // namespace lockstep::recipes
