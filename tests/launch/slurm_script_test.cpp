#include "lockstep/launch/slurm_script.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/slurm_command.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

std::string refused_script(const SlurmScriptOptions& options, const Words& words) {
  try {
    slurm_script(options, "/opt/lockstep", words);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "no error";
}

TEST(SlurmScript, IsExactlyThis) {
  SlurmScriptOptions options;
  options.nodes = 2;
  options.gpus_per_node = 8;
  options.cpus_per_task = 64;
  options.mem = "0";
  options.time = "1-12:00:00";
  options.partition = "gpu";
  options.account = "lab";
  options.job_name = "two words";
  options.output = "logs/%j.out";
  options.signal = "TERM@120";
  options.requeue = true;
  options.exclusive = true;
  options.sbatch_arg = {"--constraint=h200&ib", "--comment=say \"hi\" # there", "-H"};
  options.srun_arg = {"--cpu-bind=none"};
  options.setup = {"module load gcc", "export A='b c'"};
  EXPECT_EQ(slurm_script(options, "/opt/lock step", Words{"sft", "--run_name", "it's "
                                                                               "$HOME", "--learning_rate=1e-5", ""}),
            R"(#!/bin/bash
# One lockstep on each node; it starts the node's processes.
#SBATCH --job-name="two words"
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --time=1-12:00:00
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --exclusive
#SBATCH --output=logs/%j.out
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --constraint=h200&ib
#SBATCH --comment="say \"hi\" # there"
#SBATCH -H

module load gcc
export A='b c'
exec srun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=60 --cpus-per-task=64 --cpu-bind=none '/opt/lock step' sft )"
            R"(--run_name 'it'\''s $HOME' --learning_rate=1e-5 ''
)");
}

TEST(SlurmScript, SaysNoMoreThanWasAsked) {
  EXPECT_EQ(slurm_script({}, "/opt/lockstep", Words{"run", "./train"}), R"(#!/bin/bash
# One lockstep on each node; it starts the node's processes.
#SBATCH --job-name=run
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1

exec srun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=60 /opt/lockstep run ./train
)");
  SlurmScriptOptions options;
  options.requeue = false;
  EXPECT_NE(slurm_script(options, "/l", Words{"sft"}).find("#SBATCH --no-requeue\n"), std::string::npos);
}

TEST(SlurmScript, ValuesCannotBreakOutOfTheirLine) {
  SlurmScriptOptions options;
  options.job_name = "x\nrm -rf /";
  EXPECT_NE(refused_script(options, {"sft"}).find("--job-name = x?rm -rf /: holds a line break"), std::string::npos);
  options = {};
  options.partition = "";
  EXPECT_NE(refused_script(options, {"sft"}).find("--partition is empty"), std::string::npos);
  options = {};
  options.setup = {"a\nb"};
  EXPECT_NE(refused_script(options, {"sft"}).find("--setup = a?b"), std::string::npos);
  options = {};
  options.sbatch_arg = {"--a=1\n#"};
  EXPECT_NE(refused_script(options, {"sft"}).find("--sbatch_arg"), std::string::npos);
  options.sbatch_arg = {"constraint=x"};
  EXPECT_NE(refused_script(options, {"sft"}).find("--sbatch_arg = constraint=x: must be one option"), std::string::npos);
  options.sbatch_arg = {"--constraint x"};
  EXPECT_NE(refused_script(options, {"sft"}).find("must be one option"), std::string::npos);
  EXPECT_NE(refused_script({}, {}).find("after --"), std::string::npos);
}

/// What bash makes of a line of words.
Words as_bash_reads(const std::string& line) {
  const TempFolder folder("slurm-script-test");
  const fs::path script = folder.path() / "words.sh";
  write_file_atomically(script, "printf '%s\\0' " + line + "\n");
  FILE* pipe = ::popen(("bash " + script.string()).c_str(), "r");
  Words words;
  std::string word;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c != 0) {
      word += static_cast<char>(c);
    } else {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  EXPECT_EQ(::pclose(pipe), 0);
  return words;
}

TEST(ShellQuote, BashReadsTheSameWordsBack) {
  const Words words = {"plain", "",      "a b",    "it's", "$HOME",  "`id`",  "\"",    "\\",      "*",     "~",
                       "~root", "a=b",   "=x",     "#no",  "{a,b}",  "!1",    "a\nb",  "tab\tx",  "-n",    "x;y",
                       "(z)",   "<in",   "&",      "|",    "\xc3\xa9", "''",  "'",     "a'b'c",   "%s",    "[x]"};
  EXPECT_EQ(as_bash_reads(shell_line(words)), words);
  EXPECT_EQ(shell_quote("--learning_rate=1e-5"), "--learning_rate=1e-5");
  EXPECT_EQ(shell_quote("a/b.c,d:e@f%g+h_i"), "a/b.c,d:e@f%g+h_i");
}

/// What `lockstep slurm` says no to.
std::string command_refusal(const Words& args) {
  try {
    run_slurm_command(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "no error";
}

TEST(SlurmCommand, WritesTheScriptToAFile) {
  const TempFolder folder("slurm-command-test");
  const fs::path path = folder.path() / "job.sh";
  EXPECT_EQ(run_slurm_command({"--nodes", "3", "--sbatch-arg=--constraint=a b", "--sbatch_arg", "--nice=5", "--setup",
                               "module load x", "--output_script", path.string(), "--", "sft", "--max_steps", "3"}),
            0);
  const std::string script = read_file(path);
  EXPECT_NE(script.find("#SBATCH --nodes=3\n"), std::string::npos);
  EXPECT_NE(script.find("#SBATCH --constraint=\"a b\"\n#SBATCH --nice=5\n"), std::string::npos);
  EXPECT_NE(script.find("\nmodule load x\nexec srun "), std::string::npos);
  EXPECT_NE(script.find(" sft --max_steps 3\n"), std::string::npos);
  EXPECT_NE(fs::status(path).permissions() & fs::perms::owner_exec, fs::perms::none);
}

TEST(SlurmCommand, RefusesByName) {
  EXPECT_NE(command_refusal({"--nodes", "2"}).find("after --"), std::string::npos);
  EXPECT_NE(command_refusal({"--nodes", "0", "--", "sft"}).find("nodes = 0"), std::string::npos);
  EXPECT_NE(command_refusal({"--time", "soon", "--", "sft"}).find("time = soon"), std::string::npos);
  EXPECT_NE(command_refusal({"--nods", "2", "--", "sft"}).find("--nodes"), std::string::npos);
  EXPECT_NE(command_refusal({"--", "./train", "a b"}).find("-- run ./train 'a b'"), std::string::npos);
  EXPECT_NE(command_refusal({"--", "--max_steps", "3"}).find("command of lockstep"), std::string::npos);
  EXPECT_NE(command_refusal({"--", "slurm"}).find("command of lockstep"), std::string::npos);
  EXPECT_NE(command_refusal({"--nodes", "2", "--sbatch_arg"}).find("--sbatch_arg needs a value"), std::string::npos);
}

TEST(SlurmCommand, SubmitWithoutSlurmNamesTheRemedy) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nonexistent", 1);
  try {
    run_slurm_command({"--submit", "--", "sft"});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_NE(std::string(error.what()).find("sbatch cannot be run"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--output_script"), std::string::npos);
  }
  ::setenv("PATH", path.c_str(), 1);
}

/// A folder with an sbatch of the test's own, first in PATH while it lives.
class FakeSbatch {
 public:
  explicit FakeSbatch(const std::string& body) : folder_("fake-sbatch"), path_(std::getenv("PATH")) {
    const fs::path program = folder_.path() / "sbatch";
    write_file_atomically(program, "#!/bin/sh\n" + body + "\n");
    fs::permissions(program, fs::perms::owner_all);
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  FakeSbatch(const FakeSbatch&) = delete;
  FakeSbatch& operator=(const FakeSbatch&) = delete;
  ~FakeSbatch() { ::setenv("PATH", path_.c_str(), 1); }
  const fs::path& folder() const { return folder_.path(); }

 private:
  TempFolder folder_;
  std::string path_;
};

TEST(SlurmCommand, SubmitsTheScriptAndPrintsTheJob) {
  const FakeSbatch sbatch("cat > \"$(dirname \"$0\")/script\"; echo \"$*\" > \"$(dirname \"$0\")/args\"; echo "
                          "'41;main'");
  testing::internal::CaptureStdout();
  const int code = run_slurm_command({"--submit", "--", "sft", "--max_steps", "3"});
  std::fflush(stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "41\n");
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_file(sbatch.folder() / "args"), "--parsable\n");
  EXPECT_NE(read_file(sbatch.folder() / "script").find(" sft --max_steps 3\n"), std::string::npos);
}

TEST(SlurmCommand, ADryRunOnlyPrints) {
  const FakeSbatch sbatch("touch \"$(dirname \"$0\")/called\"");
  const fs::path path = sbatch.folder() / "job.sh";
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_slurm_command({"--dry_run", "--submit", "--output_script", path.string(), "--", "sft"}), 0);
  std::fflush(stdout);
  EXPECT_TRUE(testing::internal::GetCapturedStdout().starts_with("#!/bin/bash\n"));
  EXPECT_FALSE(fs::exists(sbatch.folder() / "called"));
  EXPECT_FALSE(fs::exists(path));
}

TEST(SlurmCommand, ARefusalOfSbatchIsItsExitCode) {
  const FakeSbatch sbatch("cat > /dev/null; exit 3");
  EXPECT_EQ(run_slurm_command({"--submit", "--", "sft"}), 3);
}

}  // namespace
}  // namespace lockstep::launch
