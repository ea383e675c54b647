#include "hosts/stage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace lockstep::hosts {
namespace {

/// Far beyond every limit of a row; a row that works never waits for it.
constexpr Milliseconds kPatience{40'000};
/// For the kernel to be done with processes that were killed.
constexpr Milliseconds kLeftoverWait{2'000};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string read_if_there(const fs::path& path) {
  try {
    return fs::exists(path) ? read_file(path) : std::string();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

std::vector<std::string> ready(int num_workers, int restarts) {
  std::vector<std::string> names;
  for (int rank = 0; rank < num_workers; ++rank) names.push_back(fmt::format("ready.{}.{}", rank, restarts));
  return names;
}

Stage::Stage(const Row& row, HostSet& hosts, uint16_t port)
    : row_(row), hosts_(hosts), port_(port), token_(fmt::format("{}.{}", getpid(), port)), launchers_(row.nodes.size()) {}

Stage::~Stage() {
  for (const pid_t pid : living()) kill(pid, SIGKILL);
  for (Launcher& launcher : launchers_) {
    if (launcher.pid > 0 && !launcher.code) waitpid(launcher.pid, nullptr, 0);
  }
  for (int host = 0; host < row_.num_hosts_to_heal; ++host) hosts_.tool(fmt::format("heal {}", host));
}

void Stage::start(size_t node) {
  const NodePlan& plan = row_.nodes[node];
  fs::create_directories(node_folder(node) / "tmp");
  const std::string host_name = plan.host_name.empty() ? fmt::format("n{}", plan.host) : plan.host_name;
  std::string endpoint = plan.endpoint.empty() ? fmt::format("10.77.0.1:{}", port_) : plan.endpoint;
  if (const size_t at = endpoint.find("PORT"); at != std::string::npos) endpoint.replace(at, 4, std::to_string(port_));
  std::vector<std::string> argv = {HostSet::tool_path(), "exec", std::to_string(plan.host), "unshare", "--uts", "/bin/sh", "-c",
                                   "hostname \"$0\" && " + (plan.before.empty() ? "exec" : plan.before) + " \"$@\"", host_name,
                                   LOCKSTEP_PROGRAM, "run"};
  argv.insert(argv.end(), row_.words.begin(), row_.words.end());
  if (endpoint != "none") {
    argv.insert(argv.end(), {"--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint});
  } else {
    argv.insert(argv.end(), {"--master_addr", "10.77.0.1", "--master_port", std::to_string(port_)});
  }
  for (std::string word : plan.words) {
    if (word.starts_with("$DIR")) word.replace(0, 4, folder_.path().string());
    argv.push_back(std::move(word));
  }
  argv.insert(argv.end(), {"/bin/sh", "-c", plan.script});
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "SLURM_", 6) != 0 && std::strncmp(*entry, "TMPDIR=", 7) != 0) environment.emplace_back(*entry);
  }
  for (const auto& entry : {"HOSTS_NAME=" + hosts_.name(), "TMPDIR=" + (node_folder(node) / "tmp").string(),
                            "DIR=" + folder_.path().string(), "LOCKSTEP_KILL_ROW=" + token_}) {
    environment.push_back(entry);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  const std::string out = node_folder(node) / "out";
  const std::string err = node_folder(node) / "err";
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  // Another thread in system() has these ignored for its time.
  sigset_t standard;
  sigemptyset(&standard);
  for (const int number : {SIGINT, SIGQUIT}) sigaddset(&standard, number);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &standard);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int problem = posix_spawn(&launchers_[node].pid, argv[0].c_str(), &actions, &attributes, pointers(argv).data(),
                                  pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) throw std::runtime_error(fmt::format("{}: {}", argv[0], std::strerror(problem)));
}

void Stage::play() {
  for (size_t node = 0; node < row_.nodes.size(); ++node) {
    if (!row_.nodes[node].starts_late) start(node);
  }
  mark();
  if (row_.event) row_.event(*this);
  for (const End& end : row_.ends) check_end(end);
  check_nothing_is_left();
  if (failures_.empty() && std::getenv("KILL_MATRIX_SAYS") == nullptr) return;
  std::string& said = failures_.empty() ? measured_ : failures_;
  said += "\n";
  for (size_t node = 0; node < launchers_.size(); ++node) {
    said += fmt::format("---- node {} said:\n{}", node, err(node));
  }
}

void Stage::reap() {
  for (Launcher& launcher : launchers_) {
    int status = 0;
    if (launcher.pid < 0 || launcher.code || waitpid(launcher.pid, &status, WNOHANG) != launcher.pid) continue;
    launcher.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    launcher.ended_s = since_mark();
  }
}

bool Stage::await(const std::function<bool()>& holds, Milliseconds longest) {
  const Deadline deadline = Deadline::in(longest);
  for (;;) {
    reap();
    if (holds()) return true;
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(Milliseconds(5));
  }
}

void Stage::signal(size_t node, int number) {
  launchers_[node].was_killed = launchers_[node].was_killed || number == SIGKILL;
  kill(launchers_[node].pid, number);
}

void Stage::await_files(const std::vector<std::string>& names) {
  const auto is_there = [&](const std::string& name) { return fs::exists(folder_.path() / name); };
  const bool all = await([&] { return std::all_of(names.begin(), names.end(), is_there); }, kPatience);
  check(all, fmt::format("not all of {} came", fmt::join(names, ", ")));
}

void Stage::touch(const std::string& name) { write_file_atomically(folder_.path() / name, ""); }

std::string Stage::read(const std::string& name) const { return read_if_there(folder_.path() / name); }

std::string Stage::err(size_t node) const { return read_if_there(node_folder(node) / "err"); }

void Stage::await_text(size_t node, const std::string& text, double at_most, double at_least) {
  const bool said = await([&] { return contains(err(node), text); }, kPatience);
  const double at = since_mark();
  check(said, fmt::format("node {} did not say '{}'", node, text));
  check(!said || (at >= at_least && at <= at_most),
        fmt::format("node {} said '{}' after {:.2f} s, not between {} and {}", node, text, at, at_least, at_most));
  note(fmt::format("node {} '{}' {:.2f} s", node, text, at));
}

void Stage::await_end(size_t node, double at_most) {
  const Launcher& launcher = launchers_[node];
  const bool ended = await([&] { return launcher.code.has_value(); }, kPatience);
  check(ended && launcher.ended_s <= at_most,
        fmt::format("node {} ended after {:.2f} s, not within {}", node, launcher.ended_s, at_most));
}

void Stage::sleep_until(double since_mark_s) {
  await([&] { return since_mark() >= since_mark_s; }, Milliseconds::max());
}

void Stage::check(bool holds, const std::string& text) {
  if (!holds) failures_ += text + "\n";
}

void Stage::check_end(const End& end) {
  await_end(end.node, end.within_s);
  const Launcher& launcher = launchers_[end.node];
  const int code = launcher.code.value_or(-1);
  check(code == end.code, fmt::format("node {} ended with {}, not {}", end.node, code, end.code));
  const std::string said = err(end.node);
  for (const std::string& text : end.says) {
    check(contains(said, text), fmt::format("node {} did not say '{}'", end.node, text));
  }
  for (const char* text : {"bug of lockstep", "terminate called", "what():"}) {
    check(!contains(said, text), fmt::format("node {} said '{}'", end.node, text));
  }
  note(fmt::format("node {} ends {:.2f} s code {}", end.node, launcher.ended_s, code));
}

/// Processes of this row, by a variable in their environment; those that only wait to be reaped have none.
std::vector<pid_t> Stage::living() const {
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && contains(read_if_there(entry.path() / "environ"), "LOCKSTEP_KILL_ROW=" + token_ + '\0')) pids.push_back(pid);
  }
  return pids;
}

void Stage::check_nothing_is_left() {
  std::vector<pid_t> left;
  await([&] { return (left = living()).empty(); }, kLeftoverWait);
  for (const pid_t pid : left) {
    std::string words = read_if_there(fmt::format("/proc/{}/cmdline", pid));
    std::replace(words.begin(), words.end(), '\0', ' ');
    check(false, fmt::format("process {} is left: {}", pid, words));
  }
  for (size_t node = 0; node < launchers_.size(); ++node) {
    // Killed without a chance to tidy up.
    if (launchers_[node].was_killed || launchers_[node].pid < 0) continue;
    for (const auto& entry : fs::directory_iterator(node_folder(node) / "tmp")) {
      const std::string name = entry.path().filename();
      const bool is_log = name.starts_with("lockstep_logs_") && launchers_[node].code != 0;
      check(is_log, fmt::format("node {} left {}", node, name));
    }
  }
}

}  // namespace lockstep::hosts
