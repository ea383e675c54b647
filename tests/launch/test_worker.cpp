// A worker that does what its arguments say, in order. An argument is RANKS:VERB or RANKS:VERB=VALUE, where RANKS is
// a rank or "all". Without "link" it never says hello.
#include "lockstep/launch/worker_link.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::launch;

void exit_resumable(int) { _exit(exit_code(ErrorKind::Resumable)); }

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void list_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  std::string text;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && name != std::to_string(dirfd(folder))) text += name + "\n";
  }
  closedir(folder);
  print(text);
}

class Actor {
 public:
  explicit Actor(int world_rank) : world_rank_(world_rank) {
    const auto set_handler = [](int signal, void (*handler)(int)) { std::signal(signal, handler); };
    verbs_ = {
        {"link", [this](const std::string&) { link_.emplace(WorkerLink::from_environment()); }},
        {"unlink", [this](const std::string&) { link_.reset(); }},
        {"phase", [this](const std::string& text) { link_->phase(text); }},
        {"done", [this](const std::string& text) { link_->done(text); }},
        {"print", [](const std::string& text) { print(text); }},
        {"line", [](const std::string& text) { print(text + "\n"); }},
        {"lines", [this](const std::string& count) {
           for (int i = 0; i < std::stoi(count); ++i) std::printf("line %d of rank %d\n", i, world_rank_);
           std::fflush(stdout);
         }},
        {"environment", [](const std::string&) {
           for (const auto& [name, value] : current_environment()) print(name + "=" + value + "\n");
         }},
        {"descriptors", [](const std::string&) { list_descriptors(); }},
        {"session", [](const std::string&) { print(getsid(0) == getpid() ? "own\n" : "shared\n"); }},
        {"write_pid", [](const std::string& path) {
           std::ofstream(path + ".part") << getpid();
           std::rename((path + ".part").c_str(), path.c_str());
         }},
        {"await", [](const std::string& path) {
           while (access(path.c_str(), F_OK) != 0) std::this_thread::sleep_for(Milliseconds(2));
         }},
        {"without_parent_death_signal", [](const std::string&) { prctl(PR_SET_PDEATHSIG, 0); }},
        {"resumable_on", [=](const std::string& signal) { set_handler(std::stoi(signal), exit_resumable); }},
        {"ignore", [=](const std::string& signal) { set_handler(std::stoi(signal), SIG_IGN); }},
        {"kill", [](const std::string& signal) {
           std::signal(std::stoi(signal), SIG_DFL);  // a sanitizer may have a handler of its own
           kill(getpid(), std::stoi(signal));
           pause();
         }},
        {"fail", [this](const std::string& text) {
           const size_t slash = text.find('/');
           const Error error(error_kind_from_name(text.substr(0, slash)), text.substr(slash + 1));
           link_->fail(error);
           link_.reset();
           _exit(error.exit_code());
         }},
        {"fail_and_hang", [this](const std::string& text) {
           link_->fail(Error(ErrorKind::Data, text));
           while (true) pause();
         }},
        {"grandchild", [](const std::string& path) {
           if (fork() != 0) return;
           std::ofstream(path + ".part") << getpid();
           std::rename((path + ".part").c_str(), path.c_str());
           while (true) pause();
         }},
        {"hog", [](const std::string&) {
           std::vector<std::string> all;
           while (true) all.emplace_back(std::string(1 << 20, 'x'));
         }},
        {"be_traced", [](const std::string& path) {
           // Until its tracer lets go, a process that was killed cannot be reaped by its parent.
           prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
           const pid_t self = getpid();
           if (fork() == 0) {
             setsid();
             for (int fd = 0; fd < 64; ++fd) close(fd);
             if (ptrace(PTRACE_SEIZE, self, nullptr, nullptr) != 0) _exit(1);
             std::ofstream(path + ".part") << getpid();
             std::rename((path + ".part").c_str(), path.c_str());
             while (true) pause();
           }
           while (access(path.c_str(), F_OK) != 0) std::this_thread::sleep_for(Milliseconds(2));
         }},
        {"exit", [](const std::string& status) { _exit(std::stoi(status)); }},
        {"spin", [](const std::string& ms) {
           const Deadline end = Deadline::in(Milliseconds(std::stoi(ms)));
           while (!end.passed()) {}
         }},
        {"pause", [](const std::string&) {
           while (true) pause();
         }},
    };
  }

  void act(std::string_view argument) {
    const size_t colon = argument.find(':');
    const std::string_view ranks = argument.substr(0, colon);
    if (ranks != "all" && ranks != std::to_string(world_rank_)) return;
    const std::string_view action = argument.substr(colon + 1);
    const size_t equals = action.find('=');
    const std::string verb(action.substr(0, equals));
    const auto found = verbs_.find(verb);
    if (found == verbs_.end()) {
      std::fprintf(stderr, "test_worker: unknown verb %s\n", verb.c_str());
      _exit(99);
    }
    found->second(equals == std::string_view::npos ? "" : std::string(action.substr(equals + 1)));
  }

 private:
  int world_rank_;
  std::optional<WorkerLink> link_;
  std::map<std::string, std::function<void(const std::string&)>> verbs_;
};

}  // namespace

int main(int argc, char** argv) {
  const char* rank = std::getenv("RANK");
  Actor actor(rank == nullptr ? 0 : std::atoi(rank));
  for (int i = 1; i < argc; ++i) actor.act(argv[i]);
  return 0;
}
