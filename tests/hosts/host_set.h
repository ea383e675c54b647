#pragma once

#include <functional>
#include <string>

namespace lockstep::hosts {

/// A few hosts with networks of their own ($LOCKSTEP_SHARED/netns/hosts, needs root), host I at 10.77.0.<I+1>. Taken down
/// with all that runs in them when it is destroyed; sets of test programs that were killed go when the next one starts.
/// Several sets are apart from each other. Use each from one thread.
class HostSet {
 public:
  /// Throws std::runtime_error when the hosts do not come up.
  explicit HostSet(int count);
  HostSet(const HostSet&) = delete;
  HostSet& operator=(const HostSet&) = delete;
  ~HostSet();

  static void take_down_abandoned();

  /// "cut 1 in", "heal 1", "lose 0 30": words of the tool. Throws std::runtime_error when it fails.
  void tool(const std::string& words) const;
  /// Runs a shell line in a host. Throws std::runtime_error when it fails.
  void shell(int host, const std::string& line) const;
  /// Calls `act` with the host's network: sockets that it opens are the host's for good.
  void inside(int host, const std::function<void()>& act) const;
  /// What starts a command in a host: put it before the command. The process keeps its id.
  std::string name() const { return name_; }
  static std::string tool_path();

 private:
  std::string name_;
};

}  // namespace lockstep::hosts
