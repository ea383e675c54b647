// Against a real SLURM; run by with_cluster.sh (two nodes n0 and n1 with two fake GPUs each).
#include "lockstep/base/files.h"
#include "lockstep/launch/host_list.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace lockstep::launch {
namespace {

struct Output {
  int exit_code = -1;
  std::string text;  ///< both streams
};

Output shell(const std::string& line) {
  Output output;
  FILE* pipe = ::popen(("{ " + line + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer{};
  size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) output.text.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// A folder to submit from.
class SlurmCluster : public testing::Test {
 protected:
  std::string in_folder(const std::string& line) const {
    return fmt::format("cd {} && tool={} && {}", folder_.path().string(), SLURM_TOOL, line);
  }
  Output run(const std::string& line) const { return shell(in_folder(line)); }
  /// Submits a batch script and waits for its end; returns what it printed.
  Output batch(const std::string& options, const std::string& body) const {
    write_file_atomically(folder_.path() / "job.sh", "#!/bin/bash\ntool=" SLURM_TOOL "\n" + body + "\n");
    Output submitted = run("sbatch --wait --output=job.out " + options + " job.sh");
    EXPECT_NE(submitted.text.find("Submitted batch job"), std::string::npos) << submitted.text;
    const fs::path out = folder_.path() / "job.out";
    return {submitted.exit_code, fs::exists(out) ? read_file(out) : ""};
  }

  TempFolder folder_{"slurm-cluster-test"};
};

TEST_F(SlurmCluster, HostListsAreReadAsScontrolReadsThem) {
  std::vector<std::string> lists = {"n[0-1]", "n0", "linux[0000-0012,1023]", "rack[0-2]_blade[7,9]", "a[1-2][3-4]",
                                    "n[3,1,2]", "n[9-11]", "n[09-11]", "n[9-011]", "n[007]", "[1-3]", "n1,n0,n1",
                                    "a[1-2],b[03-04],login", "a.b-c[1-2]", "x[0-300]", "a[0-9][0-9][0-9]"};
  uint64_t state = 1;
  const auto below = [&](uint64_t limit) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return (state >> 33) % limit;
  };
  for (int i = 0; i < 40; ++i) {
    std::vector<std::string> items;
    for (uint64_t item = 0; item <= below(3); ++item) {
      std::string name = fmt::format("h{}", below(3));
      for (uint64_t group = 0; group <= below(2); ++group) {
        const uint64_t first = below(120);
        name += fmt::format("x[{:0{}}-{},{:03}]", first, 1 + below(4), first + below(5), below(1000));
      }
      items.push_back(name);
    }
    lists.push_back(fmt::format("{}", fmt::join(items, ",")));
  }
  for (const std::string& list : lists) {
    const Output output = shell(fmt::format("scontrol show hostnames '{}'", list));
    EXPECT_EQ(output.exit_code, 0) << output.text;
    EXPECT_EQ(fmt::format("{}\n", fmt::join(parse_host_list(list, "LIST"), "\n")), output.text) << list;
  }
}

TEST_F(SlurmCluster, AStepIsReadOnEachNode) {
  const Output output = run("srun --quiet --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --gpus-per-node=2 $tool context");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const auto lines = sorted_lines(output.text);
  ASSERT_EQ(lines.size(), 2U) << output.text;
  const auto after = [&](const std::string& line, const std::string& key) {
    const size_t begin = line.find(key) + key.size();
    return line.substr(begin, line.find(' ', begin) - begin);
  };
  for (size_t node = 0; node < 2; ++node) {
    EXPECT_TRUE(lines[node].starts_with(fmt::format("step node={} of=2 hosts=n0+n1 run=", node))) << lines[node];
    EXPECT_NE(lines[node].find(" cpus=2 gpus=2 dir=" + folder_.path().string()), std::string::npos) << lines[node];
    EXPECT_TRUE(after(lines[node], "run=").ends_with(".0")) << lines[node];
    EXPECT_TRUE(after(lines[node], "endpoint=").starts_with("n0:2")) << lines[node];
  }
  EXPECT_EQ(after(lines[0], "endpoint="), after(lines[1], "endpoint="));
  EXPECT_EQ(after(lines[0], "run="), after(lines[1], "run="));
}

TEST_F(SlurmCluster, ABatchScriptIsToldFromItsSteps) {
  const Output output = batch("--nodes=2 --ntasks-per-node=1",
                              "echo \"job $SLURM_JOB_ID\"\n$tool context\nsrun $tool context | sort\n"
                              "srun --quiet --nodes=1 --ntasks=1 $tool context");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  std::istringstream words(output.text);
  std::string job;
  words >> job >> job;
  for (const std::string& expected :
       {"batch nodes=2 job=" + job + " interactive=false\n",
        std::string("\n  srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=60 " SLURM_TOOL " context\n"),
        "step node=0 of=2 hosts=n0+n1 run=" + job + ".0 ", "step node=1 of=2 hosts=n0+n1 run=" + job + ".0 ",
        "step node=0 of=1 hosts=n0 run=" + job + ".1 endpoint=-:0 "}) {
    EXPECT_NE(output.text.find(expected), std::string::npos) << expected << "\n" << output.text;
  }
}

TEST_F(SlurmCluster, TheShellOfSallocIsNoStep) {
  const Output output = run("salloc --nodes=2 --ntasks-per-node=1 $tool context");
  EXPECT_NE(output.text.find("batch nodes=2 job="), std::string::npos) << output.text;
}

TEST_F(SlurmCluster, SeveralTasksOnANodeAreRefused) {
  const Output output = run("srun --quiet --nodes=2 --ntasks-per-node=2 $tool context");
  EXPECT_EQ(output.exit_code, 2) << output.text;
  EXPECT_NE(output.text.find("2 times on node n0"), std::string::npos) << output.text;
}

/// Slurm lets variables of a step leak into a job that is submitted inside it.
TEST_F(SlurmCluster, AJobSubmittedInsideAStepDoesNotTakeItselfForThatStep) {
  write_file_atomically(folder_.path() / "inner.sh", "#!/bin/bash\n" SLURM_TOOL " context\n");
  const Output output =
      run("srun --quiet --nodes=1 --ntasks=1 --nodelist=n0 sbatch --wait --nodes=1 --nodelist=n1 --output=inner.out inner.sh; "
          "cat inner.out");
  EXPECT_EQ(output.text.find("\nstep "), std::string::npos) << output.text;
  EXPECT_NE(output.text.find("batch nodes=1"), std::string::npos) << output.text;
}

TEST_F(SlurmCluster, AllNodesOfAStepGetOneTokenSealedByMunge) {
  const Output output = run("srun --quiet --nodes=2 --ntasks-per-node=1 $tool token");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const auto lines = sorted_lines(output.text);
  ASSERT_EQ(lines.size(), 2U) << output.text;
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_TRUE(lines[0].starts_with("token 32 ")) << output.text;
  EXPECT_NE(lines[0].find("sealed by munge in " + folder_.path().string()), std::string::npos) << output.text;
}

TEST_F(SlurmCluster, WithoutMungeTheTokenIsAPrivateFile) {
  const Output output = run("srun --quiet --nodes=2 --ntasks-per-node=1 sh -c \"$tool token plain && touch "
                            "mark.\\$SLURM_NODEID; "
                            "until [ -e mark.0 ] && [ -e mark.1 ]; do sleep 0.02; done; $tool remove_token\"");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const auto lines = sorted_lines(output.text);
  ASSERT_EQ(lines.size(), 2U) << output.text;
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_NE(lines[0].find(" file " + folder_.path().string()), std::string::npos) << output.text;
  EXPECT_EQ(run("ls -A").text, "mark.0\nmark.1\n") << "the token is gone";
}

TEST_F(SlurmCluster, OnlyItsUserOpensACredential) {
  EXPECT_EQ(run("$tool unseal \"$($tool seal)\"").text, "opened words of mine\n");
  EXPECT_EQ(run("c=$($tool seal); $tool unseal $c; $tool unseal $c").text, "opened words of mine\nopened words of "
                                                                           "mine\n")
      << "both nodes may share a munged";
  const std::string other = "setpriv --reuid=65534 --regid=65534 --clear-groups ";
  const Output to_other = run("c=$($tool seal); " + other + "$tool unseal $c");
  EXPECT_EQ(to_other.text, "refused munge: another user's credential\n");
  const Output from_other = run("c=$(" + other + "$tool seal); $tool unseal $c");
  EXPECT_TRUE(from_other.text.starts_with("refused munge: ")) << from_other.text;
  const Output damaged = run("c=$($tool seal); $tool unseal ${c%????:}AAAA:");
  EXPECT_TRUE(damaged.text.starts_with("refused munge: ")) << damaged.text;
}

TEST_F(SlurmCluster, ASubmittedScriptRunsOnEachNode) {
  const Output output =
      run("$tool slurm --nodes 2 --cpus_per_task 2 --gpus_per_node 2 --time 5 --job_name 'odd \"name\" # x' --requeue "
          "false "
          "--output 'out %j' --sbatch_arg=--wait --setup 'export FROM_SETUP=\"a b\"' --submit -- context 'it'\\''s' "
          "&& cat 'out '* && squeue --noheader --states=all --name='odd \"name\" # x' --format=%j");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  for (const char* expected : {"lockstep: submitted as job ", "step node=0 of=2 hosts=n0+n1", "step node=1 of=2 "
                                                                                              "hosts=n0+n1",
                               " cpus=2 gpus=2 ", "\nodd \"name\" # x\n"}) {
    EXPECT_NE(output.text.find(expected), std::string::npos) << expected << "\n" << output.text;
  }
}

TEST_F(SlurmCluster, ARefusalOfSbatchIsTold) {
  const Output output = run("$tool slurm --partition nowhere --submit -- context");
  EXPECT_NE(output.exit_code, 0);
  EXPECT_NE(output.text.find("sbatch refused the job"), std::string::npos) << output.text;
}

/// What `lockstep slurm` writes and the batch advice says: the first cause's exit code survives.
TEST_F(SlurmCluster, TheSrunOptionsKeepTheExitCode) {
  const Output output = run("srun --quiet --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=60 "
                            "sh -c '[ $SLURM_NODEID = 1 ] || sleep 0.5; exit 3'");
  EXPECT_EQ(output.exit_code, 3) << output.text;
}

TEST_F(SlurmCluster, TheDoctorSeesTheStep) {
  const Output output = run("srun --quiet --nodes=2 --ntasks-per-node=1 --label $tool doctor --timeout 2");
  for (int node = 0; node < 2; ++node) {
    for (const char* expected : {": OK    SLURM step: 2 nodes n0, n1", ": OK    munge: works",
                                 " s from SIGTERM to SIGKILL (KillWait)", ": OK    own port: "}) {
      EXPECT_NE(output.text.find(std::to_string(node)), std::string::npos);
      EXPECT_NE(output.text.find(expected), std::string::npos) << expected << "\n" << output.text;
    }
    EXPECT_NE(output.text.find(fmt::format("node rank by SLURM_NODEID ({} here)", node)), std::string::npos)
        << output.text;
  }
}

TEST_F(SlurmCluster, DoctorsOnTwoNodesMeet) {
  write_file_atomically(folder_.path() / "meet.sh", R"(
if [ $SLURM_NODEID = 0 ]; then
  $tool doctor --listen --rdzv_endpoint n0:29411 > listen.out & pid=$!
  until [ -e done ]; do sleep 0.05; done
  kill $pid
  grep asked listen.out
else
  for i in $(seq 200); do
    $tool doctor --timeout 2 --rdzv_endpoint n0:29411 > doctor.out
    grep -q 'answers with' doctor.out && break
    sleep 0.1
  done
  cat doctor.out
  touch done
fi
)");
  const Output output = run("export tool; srun --nodes=2 --ntasks-per-node=1 bash meet.sh");
  for (const char* expected : {"OK    connection to n0:29411: 127.77.0.1:29411 from ", "n0 answers with lockstep ",
                               "OK    clock: n0's is ", "OK    UDP: n0:29411 answers", "a doctor at "}) {
    EXPECT_NE(output.text.find(expected), std::string::npos) << expected << "\n" << output.text;
  }
}

}  // namespace
}  // namespace lockstep::launch
