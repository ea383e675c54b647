#include "job_bed.h"

#include <fmt/format.h>

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <thread>

namespace lockstep::launch {
namespace {

constexpr const char* kHello = R"(#!/bin/bash
echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME group $GROUP_RANK of $GROUP_WORLD_SIZE id $TORCHELASTIC_RUN_ID $*"
)";

constexpr const char* kLong = R"(#!/bin/bash
trap 'echo "rank $RANK got SIGTERM"; touch term.$RANK; exit 0' TERM
trap 'touch usr1.$RANK' USR1
echo "rank $RANK of run $TORCHELASTIC_RUN_ID"
echo $$ > pid.$RANK
exec 3<> never
until [ -e stop ]; do read -t 0.1 -u 3; done
exit 0
)";

constexpr const char* kDeaf = R"(#!/bin/bash
trap 'touch term.$RANK' TERM
echo $$ > pid.$RANK
exec 3<> never
until [ -e stop ]; do read -t 0.1 -u 3; done
exit 0
)";

void write_program(const fs::path& path, const std::string& text) {
  write_file_atomically(path, text);
  fs::permissions(path, fs::perms::owner_all);
}

bool is_number(const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; }

}  // namespace

Output shell(const std::string& line) {
  Output output;
  FILE* pipe = ::popen(("{ " + line + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer{};
  size_t size = 0;
  while ((size = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) output.text.append(buffer.data(), size);
  const int status = ::pclose(pipe);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

bool wait_until(Milliseconds limit, const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::in(limit);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(Milliseconds(50));
  }
  return true;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

SlurmJobs::SlurmJobs() {
  write_program(file("hello"), kHello);
  write_program(file("long"), kLong);
  write_program(file("deaf"), kDeaf);
  EXPECT_EQ(run("mkfifo never").exit_code, 0);
}

SlurmJobs::~SlurmJobs() { run("touch stop; scancel --quiet --full --user=$(id -un)"); }

Output SlurmJobs::run(const std::string& line) const {
  return shell(fmt::format("cd {0} && export SLURM_JOBS_TEST={0} TMPDIR={0} lockstep={1} PATH=$PATH:{2} && {3}",
                           folder_.path().string(), LOCKSTEP_PROGRAM, fs::path(LOCKSTEP_PROGRAM).parent_path().string(),
                           line));
}

std::string SlurmJobs::submit(const std::string& options, const std::string& body) const {
  write_file_atomically(file("job.sh"), "#!/bin/bash\n" + body + "\n");
  const Output submitted = run("sbatch --parsable --nodes=2 --ntasks-per-node=1 --output=job.out --open-mode=append " +
                               options + " job.sh");
  const std::string id = submitted.text.substr(0, submitted.text.find('\n'));
  EXPECT_TRUE(!id.empty() && is_number(id)) << submitted.text;
  return id;
}

std::string SlurmJobs::await_end(const std::string& job, Milliseconds limit) const {
  const bool has_ended = wait_until(limit, [&] { return run("squeue --noheader --jobs=" + job).text.empty(); });
  EXPECT_TRUE(has_ended) << "job " << job << "\n" << output();
  EXPECT_TRUE(await_no_process(Milliseconds(2'000))) << run("ps -ef | grep " + folder_.path().string()).text;
  return output();
}

std::string SlurmJobs::state_of(const std::string& job) const {
  const std::string text = run("scontrol show job --oneliner " + job).text;
  const auto value = [&](const std::string& key) {
    const size_t at = text.find(" " + key + "=");
    if (at == std::string::npos) return std::string("?");
    const size_t begin = at + key.size() + 2;
    return text.substr(begin, text.find(' ', begin) - begin);
  };
  return value("JobState") + " " + value("ExitCode");
}

bool SlurmJobs::has_all(const std::string& prefix) const {
  for (int rank = 0; rank < 4; ++rank) {
    if (!fs::exists(file(fmt::format("{}.{}", prefix, rank)))) return false;
  }
  return true;
}

int SlurmJobs::num_processes() const {
  const std::string mark = '\0' + fmt::format("SLURM_JOBS_TEST={}", folder_.path().string()) + '\0';
  const std::string of_a_step = std::string(1, '\0') + "SLURM_STEP_ID=";
  int found = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    if (!is_number(entry.path().filename().string())) continue;
    std::string environment = std::string(1, '\0');
    try {
      environment += read_file(entry.path() / "environ");
    } catch (const std::exception&) {
      continue;  // has ended meanwhile
    }
    if (environment.find(mark) != std::string::npos && environment.find(of_a_step) != std::string::npos) ++found;
  }
  return found;
}

bool SlurmJobs::has_token_file() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) {
    if (entry.path().filename().string().starts_with(".lockstep-token")) return true;
  }
  return false;
}

}  // namespace lockstep::launch
