// What a user can do wrong, and what is said: an exception with its kind, the value and the remedy; never an exit.
#include "tiny_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include <netinet/in.h>
#include <sys/socket.h>

namespace lockstep {
namespace {

using library_test::kPairs;
using library_test::kTinyBert;
using library_test::pair_rows;
using library_test::tiny_parts;
using library_test::tokenized;
using library_test::write_text;

struct BadRow {
  std::string name;
  ErrorKind kind;
  std::string words;                    ///< part of the message
  std::function<void(const fs::path& scratch)> act;
};

/// Makes a Trainer of tiny parts that `spoil` has changed.
std::function<void(const fs::path&)> trainer_with(const std::function<void(TrainerParts&)>& spoil) {
  return [spoil](const fs::path& scratch) {
    TrainerParts parts = tiny_parts(scratch / "out");
    spoil(parts);
    const Trainer trainer(std::move(parts));
  };
}

std::function<void(const fs::path&)> argument(const std::function<void(TrainingArguments&)>& spoil) {
  return trainer_with([spoil](TrainerParts& parts) { spoil(parts.args); });
}

std::function<void(const fs::path&)> field(const std::string& name, const std::string& value) {
  return [name, value](const fs::path&) { TrainingArguments().set(name, value); };
}

Row pair_row(const Value& label) {
  return {{"question", "How many?"}, {"solution", "Two."}, {"label", label}};
}

/// Trains on two good rows and a bad one.
std::function<void(const fs::path&)> rows_with(const Row& bad) {
  return trainer_with([bad](TrainerParts& parts) {
    parts.train_dataset = tokenized(Dataset::from_rows({pair_row(int64_t{0}), pair_row(int64_t{1}), bad}, "my rows"));
  });
}

std::function<void(const fs::path&)> tokens_of(const Row& row) {
  return trainer_with([row](TrainerParts& parts) { parts.train_dataset = Dataset::from_rows({row}, "my tokens"); });
}

std::vector<Scalar> numbers(std::initializer_list<int64_t> values) { return {values.begin(), values.end()}; }

std::function<void(const fs::path&)> model(const ClassifierOptions& options) {
  return [options](const fs::path&) { SequenceClassifier::from_pretrained(kTinyBert, options); };
}

std::function<void(const fs::path&)> tokens_with(const TokenizeOptions& options) {
  return [options](const fs::path&) {
    Dataset::from_rows({pair_row(int64_t{0})}).map(Tokenizer::from_pretrained(kTinyBert), options);
  };
}

/// In an environment that a launcher might have set.
std::function<void(const fs::path&)> joining(const std::vector<std::pair<std::string, std::string>>& variables,
                                            const distributed::InitOptions& options = {}) {
  return [variables, options](const fs::path&) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const auto clean = [&] {
      for (const auto& [name, value] : variables) unsetenv(name.c_str());
    };
    try {
      distributed::init(options);
    } catch (...) {
      clean();
      throw;
    }
    clean();
    distributed::destroy();
  };
}

/// As rank 0 of two, at a port where another program listens.
void join_at_a_taken_port(const fs::path& scratch) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(fd.get(), plain, size), 0);
  ASSERT_EQ(::listen(fd.get(), 1), 0);
  ASSERT_EQ(::getsockname(fd.get(), plain, &size), 0);
  joining({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(ntohs(address.sin_port))}},
          {.join_timeout = 2})(scratch);
}

/// Rank 0 of two, alone.
void join_without_the_other(const fs::path& scratch) {
  int port = 0;
  {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(fd.get(), plain, size), 0);
    ASSERT_EQ(::getsockname(fd.get(), plain, &size), 0);
    port = ntohs(address.sin_port);
  }
  joining({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(port)}},
          {.join_timeout = 0.5})(scratch);
}

const std::vector<BadRow>& bad_rows() {
  constexpr auto Usage = ErrorKind::Usage;
  constexpr auto Data = ErrorKind::Data;
  static const std::vector<BadRow> rows = {
      // ---- arguments
      {"NegativeRate", Usage, "learning_rate = -1 (TrainingArguments): must be at least 0",
       argument([](auto& a) { a.learning_rate = -1; })},
      {"RateNotANumber", Usage, "learning_rate = nan (TrainingArguments): must be a finite number",
       argument([](auto& a) { a.learning_rate = std::nan(""); })},
      {"InfiniteDecay", Usage, "weight_decay = inf", argument([](auto& a) { a.weight_decay = INFINITY; })},
      {"Fp16", Usage, "float16 is not there yet", argument([](auto& a) { a.fp16 = true; })},
      {"NoSuchStrategy", Usage, "eval_strategy = sometimes (TrainingArguments): must be one of no, steps, epoch",
       argument([](auto& a) { a.eval_strategy = "sometimes"; })},
      {"BatchOfNone", Usage, "per_device_train_batch_size = 0",
       argument([](auto& a) { a.per_device_train_batch_size = 0; })},
      {"NoUpdates", Usage, "max_steps = 0", argument([](auto& a) { a.max_steps = 0; })},
      {"Nccl", Usage, "ddp_backend = nccl", argument([](auto& a) { a.ddp_backend = "nccl"; })},
      {"DeepSpeed", Usage, "FSDP and DeepSpeed are not used", argument([](auto& a) { a.deepspeed = "ds.json"; })},
      {"PushToHub", Usage, "lockstep sends nothing anywhere", argument([](auto& a) { a.push_to_hub = true; })},
      {"EightBitAdam", Usage, "adamw_bnb_8bit", argument([](auto& a) { a.optim = "adamw_bnb_8bit"; })},
      {"BrokenJson", Usage, "lr_scheduler_kwargs", argument([](auto& a) { a.lr_scheduler_kwargs = "{\"num_cycles\": "; })},
      {"TwoNamesOfOneThing", Usage, "two names of one option", argument([](auto& a) {
         a.eval_strategy = "epoch";
         a.evaluation_strategy = "steps";
       })},
      {"BestWithoutEvaluation", Usage, "needs evaluations during training",
       argument([](auto& a) { a.load_best_model_at_end = true; })},
      {"FactorsDoNotFit", Usage, "global_batch_size = 9", argument([](auto& a) {
         a.global_batch_size = 9;
         a.per_device_train_batch_size = 2;
         a.gradient_accumulation_steps = 2;
       })},
      {"EmptyOutput", Usage, "output_dir", argument([](auto& a) { a.output_dir = ""; })},
      {"ResultOverItsSource", Usage, "is the folder of the model to start from",
       argument([](auto& a) { a.output_dir = kTinyBert; })},
      {"SeveralAtOnce", Usage, "3 problems:", argument([](auto& a) {
         a.learning_rate = -1;
         a.fp16 = true;
         a.max_grad_norm = -2;
       })},
      {"EvaluationWithoutRows", Usage, "eval_strategy = epoch (TrainingArguments): there is no eval_dataset",
       trainer_with([](auto& parts) {
         parts.args.eval_strategy = "epoch";
         parts.eval_dataset = {};
       })},
      {"FieldNoNumber", Usage, "learning_rate = fast: must be", field("learning_rate", "fast")},
      {"FieldUnknown", Usage, "learning_rate", field("lerning_rate", "1")},
      {"FieldOfTheCommand", Usage, "load_dataset()", field("dataset_name", "mrpc")},
      {"FieldOfTheLauncher", Usage, "torchrun", field("nproc_per_node", "2")},
      // ---- data
      {"NoSuchFolder", Data, "nowhere", [](const fs::path&) { load_dataset("nowhere"); }},
      {"FolderWithoutSplits", Data, "none of its files belongs to a split",
       [](const fs::path& scratch) {
         write_text(scratch / "data" / "readme.txt", "x");
         load_dataset((scratch / "data").string());
       }},
      {"TooManyCells", Data, "train.csv:3: 3 cells, but the file has 2 columns",
       [](const fs::path& scratch) {
         write_text(scratch / "data" / "train.csv", "text,label\na,1\nb,c,0\n");
         load_dataset((scratch / "data").string());
       }},
      {"BrokenLine", Data, "train.jsonl:2", [](const fs::path& scratch) {
         write_text(scratch / "data" / "train.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \n");
         load_dataset((scratch / "data").string());
       }},
      {"NoSuchSplit", Usage, "there is no split 'dev'; there are: train, validation",
       [](const fs::path&) { load_dataset(kPairs)["dev"]; }},
      {"RowBeyond", Usage, "row 7", [](const fs::path&) { Dataset::from_rows({pair_row(int64_t{0})})[7]; }},
      {"RenameNothing", Usage, "there is no such column",
       [](const fs::path&) { Dataset::from_rows({pair_row(int64_t{0})}).rename_column("score", "label"); }},
      {"RenameOntoAnother", Usage, "there is a column 'label' already",
       [](const fs::path&) { Dataset::from_rows({pair_row(int64_t{0})}).rename_column("question", "label"); }},
      {"NoFunction", Usage, "no function", [](const fs::path&) { Dataset::from_generator({}); }},
      {"NoSuchColumn", Data, "there is no column 'sentence1'", tokens_with({.text = "sentence1"})},
      {"SecondTextAlone", Usage, "needs --text_column", tokens_with({.text_pair = "solution"})},
      {"WhichColumn", Data, "several columns could be the text", tokens_with({})},
      {"LengthWithoutTruncation", Usage, "max_length = 9 without truncation",
       tokens_with({.text = "question", .max_length = 9})},
      {"NoRoomForText", Usage, "leaves no room for text", tokens_with({.text = "question", .truncation = true, .max_length = 2})},
      {"NoSuchTask", Usage, "task = 'mrcp': must be one of", tokens_with({.task = "mrcp"})},
      {"NotUtf8", Data, "rows, item 1", [](const fs::path&) {
         Dataset::from_rows({{{"text", std::string("a\xff")}}}).map(Tokenizer::from_pretrained(kTinyBert), {.text = "text"});
       }},
      {"NotTokenized", Usage, "is not tokenized", trainer_with([](auto& parts) {
         parts.train_dataset = load_dataset(kPairs)["train"].take(8);
       })},
      {"NoLabelColumn", Data, "has no column called label", trainer_with([](auto& parts) {
         parts.train_dataset = parts.train_dataset.rename_column("label", "verdict");
       })},
      {"NullLabel", Data, "my rows, item 3: column \"label\"", rows_with(pair_row(std::monostate()))},
      {"LabelsOfTwoKinds", Data, "my rows, item 3: column \"label\"", rows_with(pair_row("two"))},
      {"LabelUnknownToTraining", Data, "the label 7 is none of the 2 classes", trainer_with([](auto& parts) {
         parts.eval_dataset = tokenized(Dataset::from_rows({pair_row(int64_t{7})}));
       })},
      {"MoreClassesThanLabels", Data, "holds 3 classes (0, 1, 2), but num_labels = 2", rows_with(pair_row(int64_t{2}))},
      {"LongerThanTheModel", Data, "but the model of", trainer_with([](auto& parts) {
         parts.train_dataset = load_dataset(kPairs)["train"].take(8).map(Tokenizer::from_pretrained(kTinyBert),
                                                                         {.text = "question", .text_pair = "solution"});
       })},
      {"TokensOutsideTheVocabulary", Data, "my tokens, item 1: token 99999 is outside the model's vocabulary",
       tokens_of({{"input_ids", numbers({1, 99999})}, {"label", int64_t{0}}})},
      {"TokensThatAreTexts", Data, "my tokens, item 1: column \"input_ids\"", tokens_of({{"input_ids", "1 2"}, {"label", int64_t{0}}})},
      {"PaddedTokens", Data, "leave the padding out",
       tokens_of({{"input_ids", numbers({1, 0})}, {"attention_mask", numbers({1, 0})}, {"label", int64_t{0}}})},
      {"TypesOfAnotherLength", Data, "1 token_type_ids for 2 input_ids",
       tokens_of({{"input_ids", numbers({1, 2})}, {"token_type_ids", numbers({0})}, {"label", int64_t{0}}})},
      // ---- models
      {"NoSuchModel", Data, "there is no such folder",
       [](const fs::path&) { SequenceClassifier::from_pretrained("bert-base-uncased"); }},
      {"NoSuchTokenizer", Data, "No folder bert-base-uncased",
       [](const fs::path&) { Tokenizer::from_pretrained("bert-base-uncased"); }},
      {"NoLabels", Usage, "num_labels = 0: must be at least 1", model({.num_labels = 0})},
      {"NoSuchProblem", Usage, "problem_type = 'ranking'", model({.problem_type = "ranking"})},
      {"OneClass", Usage, "at least two classes", model({.num_labels = 1, .problem_type = "single_label_classification"})},
      {"NamesDoNotFit", Usage, "id2label names 3 classes", model({.num_labels = 2, .id2label = {"a", "b", "c"}})},
      {"OneNameTwice", Usage, "two classes have one name", model({.id2label = {"a", "a"}})},
      {"TruncatedWeights", Data, "model.safetensors",
       [](const fs::path& scratch) {
         fs::copy(kTinyBert, scratch / "model");
         fs::resize_file(scratch / "model" / "model.safetensors", 1000);
         SequenceClassifier::from_pretrained((scratch / "model").string());
       }},
      {"HeadOfAnotherSize", Data, "classifier.weight",
       [](const fs::path& scratch) {
         TrainerParts parts = tiny_parts(scratch / "out");
         parts.model = SequenceClassifier::from_pretrained(kTinyBert);
         Trainer(std::move(parts)).train();
       }},
      // ---- the Trainer
      {"SmoothedOwnLoss", Usage, "label_smoothing_factor = 0.1 with compute_loss_func", trainer_with([](auto& parts) {
         parts.args.label_smoothing_factor = 0.1;
         parts.compute_loss_func = [](const LossInput&, std::span<float>, std::span<float>) {};
       })},
      {"SmoothedTargets", Usage, "label_smoothing_factor = 0.1 (TrainingArguments): the labels make this regression",
       trainer_with([](auto& parts) {
         parts.args.label_smoothing_factor = 0.1;
         parts.model = SequenceClassifier::from_pretrained(kTinyBert, {.num_labels = 1, .ignore_mismatched_sizes = true});
         parts.train_dataset = tokenized(Dataset::from_rows({pair_row(0.5), pair_row(1.25)}, "my rows"));
         parts.eval_dataset = {};
       })},
      {"BestByTheClock", Usage, "metric_for_best_model = runtime (TrainingArguments): depends on the clock",
       argument([](auto& a) { a.metric_for_best_model = "runtime"; })},
      {"NoSuchMetric", Usage, "metric_name = foo (TrainingArguments): is no metric",
       argument([](auto& a) { a.metric_name = std::vector<std::string>{"foo"}; })},
      {"NullCallback", Usage, "null pointer", trainer_with([](auto& parts) { parts.callbacks = {nullptr}; })},
      {"NothingToTrainOn", Usage, "there is no train_dataset",
       [](const fs::path& scratch) {
         TrainerParts parts = tiny_parts(scratch / "out");
         parts.train_dataset = {};
         parts.eval_dataset = {};
         parts.model = SequenceClassifier::from_pretrained(kTinyBert);
         Trainer(std::move(parts)).train();
       }},
      {"StrangersFolder", Usage, "out", [](const fs::path& scratch) {
         write_text(scratch / "out" / "thesis.tex", "x");
         Trainer(tiny_parts(scratch / "out")).train();
       }},
      {"NothingToResume", Usage, "resume_from_checkpoint", [](const fs::path& scratch) {
         TrainerParts parts = tiny_parts(scratch / "out");
         parts.args.resume_from_checkpoint = "last";
         Trainer(std::move(parts)).train();
       }},
      // ---- processes
      {"InitWithNccl", Usage, "backend = 'nccl'", joining({}, {.backend = "nccl"})},
      {"InitWithNonsense", Usage, "is no backend", joining({}, {.backend = "carrier pigeon"})},
      {"RankAlone", Usage, "RANK is set but WORLD_SIZE is not", joining({{"RANK", "0"}})},
      {"RankBeyond", Usage, "contradict each other", joining({{"RANK", "2"}, {"WORLD_SIZE", "2"}})},
      {"RankWithoutPlaceToMeet", Usage, "MASTER_ADDR is not set", joining({{"RANK", "0"}, {"WORLD_SIZE", "2"}})},
      {"PortNoNumber", Usage, "MASTER_PORT=http: must be a whole number",
       joining({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "http"}})},
      {"PortTaken", ErrorKind::Environment, "Choose another MASTER_PORT", join_at_a_taken_port},
      {"PortWithoutPeers", ErrorKind::Timeout, "rank(s) 1 to join", join_without_the_other},
      {"CollectiveTooEarly", Usage, "before distributed::init()", [](const fs::path&) {
         if (distributed::is_initialized()) distributed::destroy();
         distributed::barrier();
       }},
      {"RootBeyond", Usage, "root = 3: ranks go from 0 to 0", [](const fs::path&) {
         if (!distributed::is_initialized()) distributed::init();
         std::vector<float> values(1);
         distributed::broadcast(values, 3);
       }},
      {"InitTwice", Usage, "was called before", [](const fs::path&) {
         if (!distributed::is_initialized()) distributed::init();
         distributed::init();
       }},
  };
  return rows;
}

void expect_error(const BadRow& row) {
  const TempFolder scratch("lockstep-library-test");
  const bool joins = row.name.starts_with("Init") || row.name.starts_with("Rank") || row.name.starts_with("Port");
  if (joins && distributed::is_initialized()) distributed::destroy();
  try {
    row.act(scratch.path());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), name(row.kind)) << error.what();
    EXPECT_NE(std::string(error.what()).find(row.words), std::string::npos) << error.what();
  }
}

/// One test for all rows: most of a program's time goes into loading libtorch.
TEST(BadInput, IsAnExceptionThatSaysWhatToDo) {
  for (const BadRow& row : bad_rows()) {
    SCOPED_TRACE(row.name);
    expect_error(row);
  }
}

}  // namespace
}  // namespace lockstep
