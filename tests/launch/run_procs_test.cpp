// `lockstep run` on one node: what its workers get, where their output goes, and its exit code.
#include "launch/run_process.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <set>
#include <sstream>

namespace lockstep::launch {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Run, EndsWithTheCodeOfTheWorkerThatFailed) {
  struct Case {
    const char* script;
    int exit_code;
    const char* part;  ///< of stderr
  };
  for (const Case& c : {
           Case{"exit 0", 0, ""}, Case{"[ $RANK = 1 ] && exit 7; sleep 600", 7, "rank 1 (pid"},
           Case{"[ $RANK = 0 ] && exit 75; sleep 600", 75, "exitcode  : 75 (pid:"},
           Case{"[ $RANK = 1 ] && kill -9 $$; sleep 600", 137, "exitcode  : -9 (pid:"},
           Case{"[ $RANK = 1 ] && kill -SEGV $$; sleep 600", 139, "(SIGSEGV)"},
           Case{"if [ $RANK = 1 ]; then trap 'exit 0' TERM; touch $TMPDIR/ready; fi; while [ ! -e $TMPDIR/ready ]; do "
                "sleep 0.01; done; [ $RANK = 0 ] && exit 3; sleep 600 & wait", 3, "rank 1 ended normally"},
       }) {
    RunProcess run(shell_run({"--nproc_per_node", "2"}, c.script));
    EXPECT_EQ(run.wait(), c.exit_code) << c.script << "\n" << run.err();
    EXPECT_TRUE(contains(run.err(), c.part)) << c.script << "\n" << run.err();
    EXPECT_EQ(run.num_log_folders(), 0) << "temporary logs without a file are removed";
  }
  RunProcess compatible(shell_run({}, "exit 7"), {.environment = {{"LOCKSTEP_EXIT_CODE_COMPAT", "1"}}});
  EXPECT_EQ(compatible.wait(), 1);
}

TEST(Run, GivesWorkersItsOwnDescriptorsWithoutAnyPrefix) {
  RunProcess run(shell_run({"--nproc_per_node", "1"}, R"(printf 'a\000\r\nhalf'; printf 'to stderr' >&2)"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), std::string("a\0\r\nhalf", 8));
  EXPECT_EQ(run.err(), "to stderr");
  RunProcess descriptors(shell_run({}, "cd /proc/$$/fd && [ 1 -ef /proc/$PPID/fd/1 ] && [ 2 -ef /proc/$PPID/fd/2 ] && "
                                       "ls | tr '\\n' ' '"));
  EXPECT_EQ(descriptors.wait(), 0);
  EXPECT_TRUE(descriptors.out().starts_with("0 1 2 ")) << descriptors.out();
}

TEST(Run, HandsOnItsStandardInput) {
  const TempFolder folder("launch-test");
  write_file_atomically(folder.path() / "in", "from the terminal\n");
  RunProcess run({"cat"}, {.standard_input = (folder.path() / "in").string()});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "from the terminal\n");
}

TEST(Run, GivesWorkersTorchrunsVariables) {
  RunProcess run(shell_run({"--nproc_per_node", "2"}, "[ $RANK = 0 ] || env"),
                 {.environment = {{"OF_THE_USER", "a = b"}}});
  EXPECT_EQ(run.wait(), 0);
  const auto all = lines_of(run.out());
  const std::set<std::string> lines(all.begin(), all.end());
  for (const char* expected :
       {"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", "GROUP_WORLD_SIZE=1",
        "ROLE_RANK=1", "ROLE_WORLD_SIZE=2", "ROLE_NAME=default", "MASTER_ADDR=localhost", "TORCHELASTIC_RESTART_COUNT=0",
        "TORCHELASTIC_MAX_RESTARTS=0", "TORCHELASTIC_USE_AGENT_STORE=True", "OMP_NUM_THREADS=1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "OF_THE_USER=a = b", "LOCKSTEP_RESTART_COUNT=0",
        "LOCKSTEP_NODE_INDEX=0"}) {
    EXPECT_TRUE(lines.contains(expected)) << expected << " not in\n" << run.out();
  }
  EXPECT_TRUE(contains(run.err(), "OMP_NUM_THREADS is not set"));
}

TEST(Run, ReplacesTheMacroOfTheLocalRankAlone) {
  RunProcess run({"--nproc_per_node", "1", "/bin/echo", "r${local_rank}", "$local_rank", "$$", "--nnodes", "9"});
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "r0 $local_rank $$ --nnodes 9\n");
}

TEST(Run, TeesWithPrefixesIntoTorchrunsTree) {
  const TempFolder logs("launch-test");
  RunProcess teed(shell_run({"--nproc_per_node", "2", "--tee", "3", "--redirects", "1:1", "--rdzv_backend", "c10d",
                             "--rdzv_id", "job/1", "--log_dir", logs.path().string()},
                            "echo out $RANK; echo error $RANK >&2"));
  EXPECT_EQ(teed.wait(), 0);
  const auto out = lines_of(teed.out());
  EXPECT_EQ(std::multiset<std::string>(out.begin(), out.end()),
            (std::multiset<std::string>{"[default0]:out 0", "[default1]:out 1"}));
  EXPECT_TRUE(contains(teed.err(), "[default0]:error 0\n"));
  EXPECT_TRUE(contains(teed.err(), "[default1]:error 1\n"));
  const fs::path tree = *fs::directory_iterator(logs.path());
  EXPECT_TRUE(tree.filename().string().starts_with("job_1_")) << tree;
  EXPECT_EQ(tree.filename().string().size(), std::string("job_1_").size() + 8);
  EXPECT_EQ(read_file(tree / "attempt_0" / "0" / "stdout.log"), "out 0\n");
  EXPECT_EQ(read_file(tree / "attempt_0" / "1" / "stderr.log"), "error 1\n");
}

TEST(Run, RedirectsFiltersAndShortensTheConsole) {
  const TempFolder logs("launch-test");
  RunProcess run(shell_run({"--nproc_per_node", "3", "--tee", "0:3,1:3", "--redirects", "2:1",
                            "--local_ranks_filter", "0,2",
                            "--log_line_prefix_template", "<${role_name} ${rank}> ", "--role", "trainer",
                            "--duplicate_stdout_filters", "apple,pear", "--log_dir", logs.path().string()},
                           "echo apple $RANK; echo plum $RANK; printf 'a pear'; echo e$RANK >&2"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "<trainer 0> apple 0\n<trainer 0> plum 0\n<trainer 0> a pear");
  EXPECT_TRUE(contains(run.err(), "<trainer 0> e0\n"));
  EXPECT_TRUE(contains(run.err(), "e2\n")) << "not redirected: as it is";
  EXPECT_FALSE(contains(run.err(), "e1"));
  const fs::path attempt = fs::path(*fs::directory_iterator(logs.path())) / "attempt_0";
  EXPECT_EQ(read_file(attempt / "filtered_stdout.log"), "<trainer 0> apple 0\n<trainer 0> a pear\n");
  EXPECT_FALSE(fs::exists(attempt / "filtered_stderr.log"));
  EXPECT_EQ(read_file(attempt / "1" / "stdout.log"), "apple 1\nplum 1\na pear");
  EXPECT_EQ(read_file(attempt / "2" / "stdout.log"), "apple 2\nplum 2\na pear");
  EXPECT_FALSE(fs::exists(attempt / "2" / "stderr.log"));
}

TEST(Run, WithTheNullDeviceKeepsNoFilesAtAll) {
  RunProcess run(shell_run({"--tee", "3", "--log_dir", "/dev/null"}, R"(echo "[$TORCHELASTIC_ERROR_FILE]")"));
  EXPECT_EQ(run.wait(), 0);
  EXPECT_EQ(run.out(), "[]\n");
  EXPECT_EQ(run.num_log_folders(), 0);
}

TEST(Run, RemovesTemporaryLogsAfterASuccessOnly) {
  RunProcess good(shell_run({"--redirects", "3"}, "echo x; [ -d $(dirname $TORCHELASTIC_ERROR_FILE) ]"));
  EXPECT_EQ(good.wait(), 0);
  EXPECT_EQ(good.num_log_folders(), 0);
  RunProcess bad(shell_run({"--redirects", "3"}, "for i in $(seq 30); do echo line $i >&2; done; exit 4"));
  EXPECT_EQ(bad.wait(), 4);
  ASSERT_EQ(bad.files_called("stderr.log").size(), 1U);
  EXPECT_TRUE(contains(bad.err(), "logs: " + bad.file("lockstep_logs_"))) << bad.err();
  // What went into a file alone is shown in the report.
  EXPECT_TRUE(contains(bad.err(), "the end of its stderr:\n    line 21\n")) << bad.err();
  EXPECT_TRUE(contains(bad.err(), "    line 30\n")) << bad.err();
  EXPECT_FALSE(contains(bad.err(), "line 20\n")) << bad.err();
}

TEST(Run, ShowsAndHandsUpTheRecordOfTheFirstFailure) {
  const TempFolder folder("launch-test");
  const std::string parent = (folder.path() / "parent.json").string();
  write_file_atomically(folder.path() / "record",
                        R"({"message": {"message": "ValueError: no such layer", "extraInfo": {"py_callstack": )"
                        R"("Traceback (most recent call last):\nValueError: no such layer", "timestamp": "0"}}})");
  // Rank 1 records its failure and takes its time; rank 0, which needs it, dies meanwhile, and rank 1 is told to stop.
  const std::string script = "if [ $RANK = 1 ]; then trap 'exit 1' TERM; cp " + (folder.path() / "record").string() +
                             " $TORCHELASTIC_ERROR_FILE; touch $TMPDIR/written; while :; do sleep 0.01; done; fi; "
                             "while [ ! -e $TMPDIR/written ]; do sleep 0.01; done; sleep 0.02; kill -9 $$";
  RunProcess run(shell_run({"--nproc_per_node", "2"}, script), {.environment = {{"TORCHELASTIC_ERROR_FILE", parent}}});
  EXPECT_EQ(run.wait(), 1) << run.err();
  for (const char* part : {"  traceback : Traceback (most recent call last):\n  ValueError: no such layer\n",
                           "failed first: exit code 1\n  ValueError: no such layer\n",
                           "others: rank 0 killed by SIGKILL, exit code 137 (later)"}) {
    EXPECT_TRUE(contains(run.err(), part)) << part << " not in\n" << run.err();
  }
  const auto json = nlohmann::json::parse(read_file(parent));
  EXPECT_EQ(json["message"]["errorCode"], 1);
  EXPECT_EQ(json["message"]["message"], "ValueError: no such layer");
}

TEST(Run, RestartsAllWorkersAsOftenAsAllowed) {
  const TempFolder logs("launch-test");
  const std::string script = "echo $RANK:$TORCHELASTIC_RESTART_COUNT:$LOCKSTEP_RESTART_COUNT:$MASTER_PORT; "
                             "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && exit 9; exec sleep 600";
  RunProcess run(shell_run({"--nproc_per_node", "2", "--max_restarts", "3", "--redirects", "3", "--log_dir",
                            logs.path().string()}, script));
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_TRUE(contains(run.err(), "restart 1 of 3")) << run.err();
  EXPECT_TRUE(contains(run.err(), "restart 2 of 3")) << run.err();
  EXPECT_FALSE(contains(run.err(), "FAILED")) << run.err();
  const fs::path tree = *fs::directory_iterator(logs.path());
  for (const char* attempt : {"0", "1", "2"}) {
    const std::string text = read_file(tree / (std::string("attempt_") + attempt) / "1" / "stdout.log");
    EXPECT_TRUE(text.starts_with(std::string("1:") + attempt + ":" + attempt + ":")) << text;
  }
  RunProcess out_of_them(shell_run({"--max_restarts", "2"}, "echo again; exit 9"));
  EXPECT_EQ(out_of_them.wait(), 9);
  EXPECT_EQ(out_of_them.out(), "again\nagain\nagain\n");
  EXPECT_TRUE(contains(out_of_them.err(), "FAILED"));
}

TEST(Run, RefusesBeforeAnythingStarts) {
  const TempFolder folder("launch-test");
  write_file_atomically(folder.path() / "text", "hello\n");
  fs::permissions(folder.path() / "text", fs::perms::owner_all);
  struct Case {
    std::vector<std::string> words;
    int exit_code;
    std::string part;
  };
  for (const Case& c : {
           Case{{"/nowhere/train"}, 2, "/nowhere/train: No such file"}, Case{{}, 2, "there is no program"},
           Case{{"--nproc_per_nod", "2", "--xx", "y"}, 2, "unknown flag --xx"},
           Case{{(folder.path() / "text").string()}, 4, "whose first line does not name its interpreter"},
           Case{{"--log_dir", (folder.path() / "text" / "x").string(), "/bin/true"}, 4, "--log_dir /dev/null"},
       }) {
    RunProcess run(c.words);
    EXPECT_EQ(run.wait(), c.exit_code) << run.err();
    EXPECT_TRUE(contains(run.err(), "lockstep: error: ")) << run.err();
    EXPECT_TRUE(contains(run.err(), c.part)) << run.err();
    EXPECT_EQ(run.num_log_folders(), 0);
  }
}

TEST(Run, IsWhatTorchrunIsUnderItsName) {
  RunProcess torchrun({"--nproc_per_node", "2", "--no_python", "/bin/echo", "hello"}, {.program_name = "torchrun"});
  EXPECT_EQ(torchrun.wait(), 0);
  EXPECT_EQ(torchrun.out(), "hello\nhello\n");
  RunProcess trl({"--version"}, {.program_name = "trl"});
  EXPECT_EQ(trl.wait(), 0);
  EXPECT_TRUE(trl.out().starts_with("lockstep ")) << trl.out();
}

TEST(Run, WorksWithoutStandardStreams) {
  RunProcess run(shell_run({"--redirects", "3"}, "echo x; exit 0"), {.prepare = [] {
                   for (int fd = 0; fd < 3; ++fd) close(fd);
                 }});
  EXPECT_EQ(run.wait(), 0);
}

TEST(Run, GoesOnWhenTheLogDiskIsFull) {
  // The console is a pipe to cat, for the limit holds for the console's file too.
  const TempFolder logs("launch-test");
  const std::string words = fmt::format(
      "{} run --nproc_per_node 2 --tee 1 --log_dir {} seq 1 20000",
      LOCKSTEP_PROGRAM, logs.path().string());
  const std::string script = fmt::format("(ulimit -f 8; exec {}) | cat", words);
  const TempFolder folder("launch-test");
  const std::string out = (folder.path() / "out").string();
  const std::string err = (folder.path() / "err").string();
  // ulimit -f counts blocks of 512 bytes; stderr stays far below it.
  ASSERT_EQ(std::system(fmt::format("{{ {}; }} > {} 2> {}", script, out, err).c_str()), 0) << read_file(err);
  EXPECT_EQ(lines_of(read_file(out)).size(), 40'000U);
  const std::string text = read_file(err);
  EXPECT_TRUE(contains(text, "log files cannot be written (" + logs.path().string())) << text;
  EXPECT_EQ(text.find("log files cannot", text.find("log files cannot") + 1), std::string::npos) << text;
  EXPECT_TRUE(contains(text, "the run goes on")) << text;
}

TEST(Run, CarriesManyLinesWithoutLossOrReordering) {
  constexpr int kWorkers = 4;
  constexpr int kLines = 100'000;
  const TempFolder logs("launch-test");
  RunProcess run(shell_run({"--nproc_per_node", std::to_string(kWorkers), "--tee", "3", "--log_dir",
                            logs.path().string()},
                           fmt::format("seq -f \"line %.0f of $RANK\" 0 {}", kLines - 1)));
  EXPECT_EQ(run.wait(), 0) << run.err();
  std::vector<int> next(kWorkers, 0);
  for (const std::string& line : lines_of(run.out())) {
    const size_t rank = static_cast<size_t>(line.back() - '0');
    ASSERT_LT(rank, next.size()) << line;
    ASSERT_EQ(line, fmt::format("[default{0}]:line {1} of {0}", rank, next[rank]));
    ++next[rank];
  }
  EXPECT_EQ(next, std::vector<int>(kWorkers, kLines));
  const fs::path attempt = fs::path(*fs::directory_iterator(logs.path())) / "attempt_0";
  EXPECT_EQ(lines_of(read_file(attempt / "3" / "stdout.log")).size(), static_cast<size_t>(kLines));
}

}  // namespace
}  // namespace lockstep::launch
