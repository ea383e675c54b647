#include "hosts/host_set.h"

#include "lockstep/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <thread>

namespace lockstep::hosts {
namespace {

constexpr const char* kNamespaces = "/run/netns";
constexpr const char* kPrefix = "lskill";

void run(const std::string& line) {
  const int status = std::system(line.c_str());
  if (status != 0) throw std::runtime_error(fmt::format("failed with status {}: {}", status, line));
}

}  // namespace

std::string HostSet::tool_path() {
  const char* shared = std::getenv("LOCKSTEP_SHARED");
  if (shared == nullptr) {
    throw std::runtime_error("LOCKSTEP_SHARED must name the folder that holds netns/hosts; leave tests labelled shared out");
  }
  return std::string(shared) + "/netns/hosts";
}

HostSet::HostSet(int count) {
  static std::atomic<int> next{0};
  name_ = fmt::format("{}{}x{}h", kPrefix, getpid(), next++);
  run(fmt::format("HOSTS_NAME={} {} up {}", name_, tool_path(), count));
}

HostSet::~HostSet() {
  const std::string line = fmt::format("HOSTS_NAME={} {} down", name_, tool_path());
  // The kernel may still be busy with what was killed.
  for (int attempt = 0; attempt < 5 && std::system(line.c_str()) != 0; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

void HostSet::take_down_abandoned() {
  std::set<std::string> names;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(kNamespaces, problem)) {
    const std::string name = entry.path().filename();
    const int pid = name.starts_with(kPrefix) ? std::atoi(name.c_str() + std::string_view(kPrefix).size()) : 0;
    if (pid > 0 && kill(pid, 0) != 0) names.insert(name.substr(0, name.find('h', name.find('x')) + 1));
  }
  for (const std::string& name : names) run(fmt::format("HOSTS_NAME={} {} down", name, tool_path()));
}

void HostSet::tool(const std::string& words) const { run(fmt::format("HOSTS_NAME={} {} {}", name_, tool_path(), words)); }

void HostSet::shell(int host, const std::string& line) const {
  run(fmt::format("HOSTS_NAME={} {} exec {} /bin/sh -c '{}'", name_, tool_path(), host, line));
}

void HostSet::inside(int host, const std::function<void()>& act) const {
  const auto enter = [](const std::string& path) {
    const UniqueFd there(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (there.get() < 0 || setns(there.get(), CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter " + path);
  };
  // A thread of its own: what it enters ends with it.
  std::exception_ptr problem;
  std::thread thread([&] {
    try {
      enter(fmt::format("{}/{}{}", kNamespaces, name_, host));
      act();
    } catch (...) {
      problem = std::current_exception();
    }
  });
  thread.join();
  if (problem) std::rethrow_exception(problem);
}

}  // namespace lockstep::hosts
