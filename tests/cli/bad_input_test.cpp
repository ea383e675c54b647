// Whatever is wrong with what a user gives: the right exit code, a message with the value and a remedy, nothing left.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::cli {
namespace {

constexpr int kUsage = 2, kData = 3, kEnvironment = 4, kNonFinite = 7;
const std::string kUpProj = "model.layers.1.mlp.up_proj.weight";

/// What a case may prepare; its flags come after those of sft_args().
struct Setting {
  Scratch scratch;
  std::vector<std::string> flags;
  fs::path output = scratch / "out";

  void add(const std::string& flag, const std::string& value) {
    flags.push_back(flag);
    flags.push_back(value);
  }
  /// A copy of the tiny llama that the case may damage.
  fs::path model() {
    fs::copy(kTinyModels / "llama", scratch / "model");
    add("--model_name_or_path", (scratch / "model").string());
    return scratch / "model";
  }
  fs::path weights() { return model() / "model.safetensors"; }
  void data(const std::string& text) { add("--dataset_name", scratch.write("rows.jsonl", text).string()); }
  void config(const std::string& yaml) { add("--config", scratch.write("run.yaml", yaml).string()); }
  void out(const fs::path& path) {
    output = path;
    add("--output_dir", path.string());
  }
};

struct Case {
  const char* name;
  int exit_code;
  std::vector<std::string> says;
  std::function<void(Setting&)> prepare;
};

/// Else the names that ctest shows hold the bytes of the struct.
void PrintTo(const Case& bad, std::ostream* out) { *out << bad.name; }

std::string first_chat() { return lines_of(kChats).front() + "\n"; }

const std::vector<Case>& model_cases() {
  static const std::vector<Case> cases = {
      {"ModelFolderMissing", kData, {"--model_name_or_path = ", "/absent", "give its folder"},
       [](Setting& s) { s.add("--model_name_or_path", (s.scratch / "absent").string()); }},
      {"ModelIsAFile", kData, {"--model_name_or_path = ", "is not a folder", "Give the folder"},
       [](Setting& s) { s.add("--model_name_or_path", s.scratch.write("file", "").string()); }},
      {"ConfigMissing", kData, {"there is no config.json in it", "Give the folder of a Hugging Face model"},
       [](Setting& s) { fs::remove(s.model() / "config.json"); }},
      {"ConfigBroken", kData, {"config.json: is not valid JSON at line 2, column", "Fetch the file again"},
       [](Setting& s) { s.model(), s.scratch.write("model/config.json", "{\"vocab_size\":\n 1,,"); }},
      {"ArchitectureUnknown", kData, {"config.json", "BloomForCausalLM", "There are: LlamaForCausalLM"},
       [](Setting& s) {
         change_json(s.model() / "config.json", [](Json& json) {
           json["architectures"] = {"BloomForCausalLM"};
           json["model_type"] = "bloom";
         });
       }},
      {"WeightsMissing", kData, {"neither model.safetensors nor", "Name a Hugging Face model folder"},
       [](Setting& s) { fs::remove(s.weights()); }},
      {"WeightsTruncated", kData, {"model.safetensors", "of 297", "cut off or damaged: fetch it again"},
       [](Setting& s) { fs::resize_file(s.weights(), 300'000); }},
      {"HeaderLiesAboutItsLength", kData, {"claims a header of 1099511627776 bytes", "Is this a safetensors file?"},
       [](Setting& s) {
         const fs::path file = s.weights();
         write_raw(file, read_raw(file), uint64_t{1} << 40);
       }},
      {"HeaderLiesAboutOffsets", kData, {kUpProj, "needs 24576 bytes but has 24640", "Fetch the file again"},
       [](Setting& s) {
         change_raw(s.weights(), [](RawSafetensors& raw) {
           Json& end = raw.header[kUpProj]["data_offsets"][1];
           end = end.get<int64_t>() + 64;
         });
       }},
      {"TensorMissing", kData, {"lacks 1 of 21 tensors: " + kUpProj, "fetch it again"},
       [](Setting& s) {
         change_raw(s.weights(), [](RawSafetensors& raw) {
           raw.header["other.weight"] = raw.header[kUpProj];
           raw.header.erase(kUpProj);
         });
       }},
      {"ShapeWrong", kData, {"model.safetensors", "has shape [96, 64], config.json makes it [80, 64]", "Correct"},
       [](Setting& s) { change_json(s.model() / "config.json", [](Json& json) { json["intermediate_size"] = 80; }); }},
      {"WeightIsNan", kData, {"/model/model.safetensors", kUpProj + " holds NaN or infinite", "earlier checkpoint"},
       [](Setting& s) {
         change_raw(s.weights(), [](RawSafetensors& raw) {
           const float nan = std::numeric_limits<float>::quiet_NaN();
           std::memcpy(raw.data.data() + raw.header[kUpProj]["data_offsets"][0].get<size_t>(), &nan, sizeof(nan));
         });
       }},
      {"WeightIsInfiniteInFloat16", kData, {"model.norm.weight holds NaN or infinite", "earlier checkpoint"},
       [](Setting& s) { convert_to_float16(s.weights(), "model.norm.weight"); }},
      {"TokenizerMissing", kData, {"/model has no tokenizer.json", "save_pretrained"},
       [](Setting& s) { fs::remove(s.model() / "tokenizer.json"); }},
      {"TokenizerBroken", kData, {"tokenizer.json (1 bytes)", "Download it again"},
       [](Setting& s) { s.model(), s.scratch.write("model/tokenizer.json", "{"); }},
      {"TokenizerLargerThanTheModel", kData, {"chats-96.jsonl:1: token", "vocab_size = 256", "the model's own tokenizer"},
       [](Setting& s) { change_json(s.model() / "config.json", [](Json& json) { json["vocab_size"] = 256; }); }},
  };
  return cases;
}

const std::vector<Case>& data_cases() {
  static const std::vector<Case> cases = {
      {"DataMissing", kData, {"--dataset_name = ", "absent.jsonl", "give a .jsonl file"},
       [](Setting& s) { s.add("--dataset_name", (s.scratch / "absent.jsonl").string()); }},
      {"LineIsNoJson", kData, {"rows.jsonl:3: not valid JSON", "Correct or remove it"},
       [](Setting& s) { s.data(first_chat() + first_chat() + "{\"messages\": [\n"); }},
      {"ColumnMissing", kData, {"rows.jsonl:1: no column to train on (found: txet", "--dataset_text_field"},
       [](Setting& s) { s.data("{\"txet\": \"hello\"}\n"); }},
      {"TextIsNull", kData, {"rows.jsonl:2: no column to train on: the value of text is null", "remove this row"},
       [](Setting& s) { s.data("{\"text\": \"hello\"}\n{\"text\": null}\n"); }},
      {"CompletionIsNull", kData, {"rows.jsonl:1: no column", "the value of completion is null (found: prompt)"},
       [](Setting& s) { s.data("{\"prompt\": \"hello\", \"completion\": null}\n"); }},
      {"KindsMixed", kData, {"rows.jsonl:2: this row is of kind text", "one kind at a time"},
       [](Setting& s) { s.data(first_chat() + "{\"text\": \"hello\"}\n"); }},
      {"DataEmpty", kData, {"the data has no rows", "rows.jsonl", "Check --dataset_name"},
       [](Setting& s) { s.data(""); }},
      {"PromptsFillEveryRow", kData, {"none of the 1 rows can be trained on", "max_length = 8", "Raise --max_length"},
       [](Setting& s) {
         s.data("{\"prompt\": \"a prompt that is longer than eight tokens\", \"completion\": \"x\"}\n");
         s.add("--max_length", "8");
       }},
      {"ContentIsNull", kData, {"rows.jsonl:1: message 1 of messages has content null", "role and content"},
       [](Setting& s) { s.data("{\"messages\": [{\"role\": \"user\", \"content\": null}]}\n"); }},
      {"ContentHasAPicture", kData, {"part 1 of content is {\"type\":\"image_url\"", "write the content as one string"},
       [](Setting& s) {
         s.data("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}\n");
       }},
      {"AssistantTurnsNotMarked", kUsage, {"--assistant_only_loss needs a chat template that marks", "{% generation %}"},
       [](Setting& s) { s.flags.emplace_back("--assistant_only_loss"); }},
      {"TemplateBroken", kData, {"chat.jinja", "line 1", "Correct the template"},
       [](Setting& s) {
         s.add("--chat_template_path", s.scratch.write("chat.jinja", "{% for x in %}").string());
       }},
  };
  return cases;
}

const std::vector<Case>& output_cases() {
  static const std::vector<Case> cases = {
      {"OutputIsAFile", kUsage, {"--output_dir = ", "/file: is a file", "Name a folder"},
       [](Setting& s) { s.out(s.scratch.write("file", "")); }},
      {"OutputIsALinkToNothing", kUsage, {"--output_dir = ", "is a link to", "gone", "Create that folder"},
       [](Setting& s) {
         fs::create_directory_symlink(s.scratch / "gone", s.scratch / "link");
         s.out(s.scratch / "link");
       }},
      {"OutputIsEmpty", kUsage, {"output_dir = ''", "is empty", "trainer_output"},
       [](Setting& s) { s.add("--output_dir", ""); }},
      {"OutputBelowAFile", kEnvironment, {"/file: cannot create the folder", "check the path"},
       [](Setting& s) { s.out(s.scratch.write("file", "") / "below"); }},
      {"OutputHoldsForeignFiles", kUsage, {"--output_dir = ", "/thesis", "--overwrite_output_dir"},
       [](Setting& s) {
         fs::create_directory(s.scratch / "thesis");
         s.scratch.write("thesis/chapter-1.tex", "text");
         s.out(s.scratch / "thesis");
       }},
      {"OutputWhereNothingCanBeWritten", kEnvironment, {"/proc/none", "Check the path"},
       [](Setting& s) { s.out("/proc/none/out"); }},
      {"LastStepOverflows", kNonFinite, {"after update 1 the weights", "so no checkpoint is taken", "Lower --learning_rate"},
       [](Setting& s) { s.add("--learning_rate", "1e39"), s.add("--max_steps", "1"); }},
      {"LastStepOverflowsUnsaved", kNonFinite, {"after the last update", "so the model is not saved", "Lower --learning_rate"},
       [](Setting& s) { s.add("--learning_rate", "1e39"), s.add("--max_steps", "1"), s.add("--save_strategy", "no"); }},
      {"SavedDtypeIsTooNarrow", kNonFinite, {"beyond the range of float16", "Use --dtype float32"},
       [](Setting& s) {
         s.add("--learning_rate", "1e6"), s.add("--max_steps", "1"), s.add("--dtype", "float16");
       }},
  };
  return cases;
}

const std::vector<Case>& option_cases() {
  static const auto flag = [](const char* name, const char* value) {
    return [name, value](Setting& s) { s.add(name, value); };
  };
  static const auto lone = [](const char* name) { return [name](Setting& s) { s.flags.emplace_back(name); }; };
  static const std::vector<Case> cases = {
      {"MaxLengthZero", kUsage, {"max_length = 0", "at least 1", "--max_length 1024"}, flag("--max_length", "0")},
      {"ValueIsNoNumber", kUsage, {"learning_rate = abc", "such as 2e-5"}, flag("--learning_rate", "abc")},
      {"ValueIsEndless", kUsage, {"max_steps = 111", "(5000 characters"},
       [](Setting& s) { s.add("--max_steps", std::string(5000, '1')); }},
      {"NegationOfAFalse", kUsage, {"unknown flag --no_packing", "Use --packing false"}, lone("--no_packing")},
      {"ValueIsNan", kUsage, {"learning_rate = nan", "a finite number"}, flag("--learning_rate", "nan")},
      {"ValueMissing", kUsage, {"--learning_rate needs a value", "such as 2e-5"}, lone("--learning_rate")},
      {"BatchSizeZero", kUsage, {"per_device_train_batch_size = 0", "at least 1"},
       flag("--per_device_train_batch_size", "0")},
      {"ProcessesZero", kUsage, {"nproc_per_node = 0", "a number from 1"}, flag("--nproc_per_node", "0")},
      {"ThreadsZero", kUsage, {"threads_per_process = 0", "at least 1"}, flag("--threads_per_process", "0")},
      {"BatchSizesContradict", kUsage, {"global_batch_size = 24", "5 x 1 x 2 = 10", "Leave out"},
       [](Setting& s) {
         s.add("--global_batch_size", "24");
         s.add("--per_device_train_batch_size", "5");
         s.add("--gradient_accumulation_steps", "2");
       }},
      {"BatchDoesNotDivide", kUsage, {"global_batch_size = 25", "5 x 2 = 10", "Leave one of the two out"},
       [](Setting& s) {
         s.add("--global_batch_size", "25");
         s.add("--per_device_train_batch_size", "5");
         s.add("--nproc_per_node", "2");
       }},
      {"FlagUnknown", kUsage, {"unknown flag --learnin_rate", "Did you mean --learning_rate?"},
       flag("--learnin_rate", "1")},
      {"WordAlone", kUsage, {"'hello' stands alone", "--dataset_name FILE"}, lone("hello")},
      {"ScheduleUnknown", kUsage, {"lr_scheduler_type = liner", "linear, cosine, cosine_with_restarts"},
       flag("--lr_scheduler_type", "liner")},
      {"PackingStrategyUnknown", kUsage, {"packing_strategy = best", "bfd, bfd_split, wrapped"},
       flag("--packing_strategy", "best")},
      {"LoraRefused", kUsage, {"use_peft = true", "LoRA is not there yet", "Leave it out"}, lone("--use_peft")},
      {"Fp16Refused", kUsage, {"fp16 = true", "Use --bf16 true"}, lone("--fp16")},
      {"DeepspeedRefused", kUsage, {"deepspeed = x", "Leave it out"}, flag("--deepspeed", "x")},
      {"EvaluationHasNoRows", kUsage, {"--eval_strategy needs rows", "split 'test'", "--dataset_test_split"},
       flag("--eval_strategy", "steps")},
      {"HubRefused", kUsage, {"push_to_hub = true", "upload the output folder"}, lone("--push_to_hub")},
      {"YamlTypeWrong", kUsage, {"learning_rate = fast", "run.yaml:2", "such as 2e-5"},
       [](Setting& s) { s.config("max_steps: 3\nlearning_rate: fast\n"); }},
      {"YamlKeyUnknown", kUsage, {"run.yaml:2: unknown option learing_rate", "Did you mean learning_rate?"},
       [](Setting& s) { s.config("max_steps: 3\nlearing_rate: 1\n"); }},
      {"YamlBroken", kUsage, {"run.yaml:2: this is not YAML", "'option: value'"},
       [](Setting& s) { s.config("max_steps: [3\nseed: 1\n"); }},
      {"YamlQuoteOpen", kUsage, {"run.yaml:2: the quote that opens here is never closed", "Close it"},
       [](Setting& s) { s.config("max_steps: 3\nlog_level: \"info\nseed: 1\n"); }},
      {"YamlKeyTwiceInside", kUsage, {"run.yaml:3: lr_scheduler_kwargs: the key num_cycles stands in line 2 already"},
       [](Setting& s) { s.config("lr_scheduler_kwargs:\n  num_cycles: 1\n  num_cycles: 2\n"); }},
      {"OptimArgumentTwice", kUsage, {"optim_args = momentum=0.9,momentum=0.8: momentum stands in it twice"},
       [](Setting& s) { s.add("--optim", "sgd"), s.add("--optim_args", "momentum=0.9,momentum=0.8"); }},
      {"ScheduleArgumentTwice", kUsage, {"lr_scheduler_kwargs = ", "the key \"num_cycles\" stands in it twice"},
       [](Setting& s) {
         s.add("--lr_scheduler_type", "cosine"), s.add("--lr_scheduler_kwargs", R"({"num_cycles": 1, "num_cycles": 2})");
       }},
      {"EndpointOpen", kUsage, {"rdzv_endpoint = [::1 (command line): this is not host:port", "[fd00::1]:29500"},
       flag("--rdzv_endpoint", "[::1")},
      {"YamlMissing", kUsage, {"--config ", "absent.yaml", "Check the path"},
       [](Setting& s) { s.add("--config", (s.scratch / "absent.yaml").string()); }},
  };
  return cases;
}

class BadInput : public testing::TestWithParam<Case> {};

TEST_P(BadInput, IsToldWithItsValueAndARemedy) {
  const Case& bad = GetParam();
  Setting setting;
  bad.prepare(setting);
  const Ended ended = run(setting.scratch, sft_args(setting.scratch, setting.flags));
  EXPECT_EQ(ended.exit_code, bad.exit_code) << ended.err;
  for (const std::string& text : bad.says) {
    EXPECT_NE(ended.err.find(text), std::string::npos) << "'" << text << "' is not in:\n" << ended.err;
  }
  for (const char* text : {"nternal error", "Exception raised", "frame #", "terminate called", "json.exception"}) {
    EXPECT_EQ(ended.err.find(text), std::string::npos) << "'" << text << "' in:\n" << ended.err;
  }
  EXPECT_EQ(ended.out.find("Trained"), std::string::npos);
  EXPECT_EQ(setting.scratch.leftovers_of_failed_run(setting.output), "");
}

const auto case_name = [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Model, BadInput, testing::ValuesIn(model_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Data, BadInput, testing::ValuesIn(data_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Output, BadInput, testing::ValuesIn(output_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Options, BadInput, testing::ValuesIn(option_cases()), case_name);

TEST(BadCommand, IsAnsweredWithTheCommandsThereAre) {
  const Scratch scratch;
  const Ended ended = run(scratch, {"sfft"});
  EXPECT_EQ(ended.exit_code, kUsage);
  EXPECT_NE(ended.err.find("lockstep sfft: there is no such command. Did you mean lockstep sft? Commands: sft"), std::string::npos) << ended.err;
}

TEST(BadCommand, NamesEveryMissingFlagAtOnce) {
  const Scratch scratch;
  const Ended ended = run(scratch, {"sft"});
  EXPECT_EQ(ended.exit_code, kUsage);
  EXPECT_NE(ended.err.find("missing --model_name_or_path"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("missing --dataset_name"), std::string::npos) << ended.err;
}

TEST(BadOutput, KeepsTheForeignFileItRefused) {
  const Scratch scratch;
  fs::create_directory(scratch / "out");
  scratch.write("out/chapter-1.tex", "text");
  EXPECT_EQ(run(scratch, sft_args(scratch)).exit_code, kUsage);
  EXPECT_EQ(read_file(scratch / "out/chapter-1.tex"), "text");
}

}  // namespace
}  // namespace lockstep::cli
