#include "lockstep/launch/run_command_line.h"

#include "launch/run_words.h"
#include "lockstep/launch/run_help.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace lockstep::launch {
namespace {

TEST(RunCommandLine, FindsTheProgramFirstAndLeavesItsArgumentsAlone) {
  struct Case {
    const char* line;
    const char* program;
  };
  for (const Case& c : {
           Case{"train.py", "train.py"},
           Case{"--nproc_per_node 2 train.py --nproc_per_node 3 --mo x", "train.py --nproc_per_node 3 --mo x"},
           Case{"--nproc-per-node=2 train.py -m --d --r --log", "train.py -m --d --r --log"},
           Case{"--standalone true --standalone", "true --standalone"},
           Case{"-m pkg.train --help", "pkg.train --help"},
           Case{"-r 3 -t3 -t=1 ./train -h", "./train -h"},
           Case{"--nnodes 1 -- train.py -- --x", "train.py -- --x"},
           Case{"--max-restarts=3 --no-python /bin/sh -c exit", "/bin/sh -c exit"},
           Case{"--tee 3 - x", "- x"},
       }) {
    EXPECT_EQ(parse_line(c.line).program, words_of(c.program)) << c.line;
  }
}

TEST(RunCommandLine, KnowsEveryFlagOfTorchrunInBothSpellings) {
  std::ifstream file(std::string(LOCKSTEP_TEST_DATA) + "/launch/torchrun-2.15-flags.tsv");
  ASSERT_TRUE(file.is_open());
  RunOptions options;
  const options::Fields fields = options::collect(options);
  std::string line;
  std::getline(file, line);
  int num_flags = 0;
  std::set<std::string> destinations;
  while (std::getline(file, line)) {
    const std::string flags = line.substr(0, line.find('\t'));
    if (!flags.starts_with("-")) continue;
    for (const std::string& flag : words_of(flags)) {
      ++num_flags;
      const bool is_boolean = flag == "-m" || flag == "-h" || flag == "--help" ||
                              (flag.starts_with("--") && options::find(fields, flag.substr(2)) != nullptr &&
                               std::holds_alternative<bool*>(options::find(fields, flag.substr(2))->target));
      options::Problems problems;
      const std::vector<std::string> args = is_boolean ? std::vector<std::string>{flag, "program"}
                                                       : std::vector<std::string>{flag, "0", "program"};
      // A value that is refused is fine here: the flag must be known.
      const std::string error = usage_error([&] { parse_run(args, {}, {}); });
      EXPECT_EQ(error.find("unknown flag"), std::string::npos) << flag << ": " << error;
    }
  }
  EXPECT_EQ(num_flags, 63);
}

TEST(RunCommandLine, ReadsValuesByPriority) {
  const Environment environment = {{"PET_NNODES", "2:4"}, {"PET_NPROC_PER_NODE", "8"}, {"PET_MODULE", "1"},
                                   {"PET_STANDALONE", "0"}, {"PET_MASTER_PORT", "1234"}};
  const ParsedRun parsed = parse_line("--nproc_per_node 3 pkg.mod", environment);
  EXPECT_EQ(parsed.options.nproc_per_node, "3");
  EXPECT_EQ(parsed.options.nnodes, "2:4");
  EXPECT_TRUE(parsed.options.module);
  EXPECT_FALSE(parsed.options.standalone);
  EXPECT_EQ(parsed.options.master_port, 1234);
  EXPECT_EQ(parsed.options.rdzv_backend, "static");
  EXPECT_TRUE(parsed.is_given("nnodes"));
  EXPECT_FALSE(parsed.is_given("rdzv_backend"));
  EXPECT_EQ(options::origin_of(parsed.origins, "nnodes").text(), "PET_NNODES");
}

TEST(RunCommandLine, HasNoVariablesForWhatTorchrunHasNone) {
  const Environment environment = {
      {"PET_LOGS_SPECS", "x"}, {"PET_NUMA_BINDING", "node"}, {"PET_PRINT_COMPLETION", "bash"}};
  EXPECT_FALSE(parse_line("train.py", environment).is_given("logs_specs"));
  EXPECT_FALSE(parse_line("train.py", environment).text.has_value());
}

TEST(RunCommandLine, TakesUniqueBeginningsBeforeTheProgramOnly) {
  EXPECT_EQ(parse_line("--nproc 4 train.py").options.nproc_per_node, "4");
  EXPECT_EQ(parse_line("--rdzv-b c10d --rdzv_e h:1 train.py").options.rdzv_endpoint, "h:1");
  const std::string error = usage_error([] { parse_line("--rdzv x train.py"); });
  EXPECT_NE(error.find("--rdzv_backend, --rdzv_endpoint"), std::string::npos) << error;
}

struct Refusal {
  const char* line;
  std::vector<const char*> parts;  ///< of the message
};

TEST(RunCommandLine, RefusesByNameWithTheRemedy) {
  for (const Refusal& c : {
           Refusal{"--nproc_per_nod3 2 x", {"unknown flag --nproc_per_nod3", "Did you mean --nproc_per_node?"}},
           Refusal{"--epochs 3 train.py", {"unknown flag --epochs", "come after its name"}},
           Refusal{"-x train.py", {"unknown flag -x"}},
           Refusal{"--nproc_per_node", {"--nproc_per_node needs a value"}},
           Refusal{"--nproc_per_node --standalone x", {"--nproc_per_node needs a value"}},
           Refusal{"--nproc_per_node 2", {"there is no program", "train.py"}},
           Refusal{"--nproc_per_node 0 x", {"nproc_per_node = 0 (command line)", "1 to 9999"}},
           Refusal{"--nproc_per_node xpu x", {"xpu", "Give their number"}},
           Refusal{"--nnodes 1:2:3 x", {"nnodes = 1:2:3", "MIN:MAX"}},
           Refusal{"--max_restarts -1 x", {"max_restarts = -1", "at least 0"}},
           Refusal{"--max_restarts two x", {"max_restarts = two", "a whole number"}},
           Refusal{"--rdzv_backend etcd x", {"etcd", "Use c10d"}},
           Refusal{"--rdzv_backend etcd-v2 x", {"etcd", "Use c10d"}},
           Refusal{"--rdzv_backend mine x", {"static, c10d"}},
           Refusal{"--run_path x", {"run_path", "no Python interpreter", "Leave it out"}},
           Refusal{"--logs_specs mine x", {"logs_specs", "plug-in", "--log_dir"}},
           Refusal{"--event_log_handler console x", {"event_log_handler", "plug-ins"}},
           Refusal{"--numa_binding node x", {"numa_binding", "near the GPU of its number", "numactl"}},
           Refusal{"--numa-binding core-complex x", {"numa_binding", "near the GPU of its number"}},
           Refusal{"--start_method thread x", {"spawn, fork, forkserver"}},
           Refusal{"-m --no_python x", {"contradict"}},
           Refusal{"--shutdown_timeout -3 x", {"shutdown_timeout = -3", "at least 0"}},
       }) {
    const std::string error = usage_error([&] { parse_line(c.line); });
    for (const char* part : c.parts) EXPECT_NE(error.find(part), std::string::npos) << c.line << ": " << error;
  }
  const auto of_variable = [](const Environment& environment) {
    return usage_error([&] { parse_line("x", environment); });
  };
  EXPECT_NE(of_variable({{"PET_NNODES", "many"}}).find("nnodes = many (PET_NNODES)"), std::string::npos);
  EXPECT_NE(of_variable({{"PET_STANDALONE", "maybe"}}).find("(PET_STANDALONE)"), std::string::npos);
}

TEST(RunCommandLine, NotesWhatHasNoEffect) {
  const ParsedRun parsed = parse_line("--start_method fork --monitor_interval 5 --exit_barrier_timeout 10 x");
  ASSERT_EQ(parsed.notes.size(), 3U);
  EXPECT_NE(parsed.notes[0].find("start_method = fork (command line) has no effect"), std::string::npos);
  EXPECT_TRUE(parse_line("--event_log_handler null --start_method spawn x").notes.empty());
}

TEST(RunCommandLine, HelpsAndCompletes) {
  for (const char* line : {"--help", "-h", "--nproc_per_node 2 --help"}) {
    const ParsedRun parsed = parse_line(line);
    ASSERT_TRUE(parsed.text.has_value()) << line;
    for (const char* part : {"Recipes", "srun", "--rdzv_endpoint", "--nproc_per_node", "--run_path"}) {
      EXPECT_NE(parsed.text->find(part), std::string::npos) << part;
    }
  }
  for (const char* shell : {"bash", "zsh", "tcsh"}) {
    const ParsedRun parsed = parse_line(std::string("--print-completion ") + shell);
    ASSERT_TRUE(parsed.text.has_value());
    EXPECT_NE(parsed.text->find("nproc-per-node"), std::string::npos);
    EXPECT_EQ(parsed.text->find("run-path"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::launch
