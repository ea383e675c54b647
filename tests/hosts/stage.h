#pragma once

#include "hosts/host_set.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/files.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace lockstep::hosts {

/// A launcher of a row: `lockstep run <the row's words> <words> /bin/sh -c <script>` on a host whose name is n<host>.
struct NodePlan {
  int host = 0;
  std::vector<std::string> words = {};
  std::string script = {};
  bool starts_late = false;  ///< by Stage::start() only
  std::string before = {};   ///< shell words before the launcher: "nohup", "ulimit -f 1; exec"
  std::string host_name = {};  ///< instead of n<host>
  std::string endpoint = {};   ///< instead of the first host's address and the row's port; "none": no endpoint is given
};

/// How a launcher must have ended.
struct End {
  size_t node = 0;
  int code = 0;
  std::vector<std::string> says = {};  ///< parts of its standard error
  double within_s = 2;                 ///< of Stage::mark()
};

class Stage;

/// A row of the kill matrix.
struct Row {
  std::string name;
  std::vector<NodePlan> nodes;
  std::function<void(Stage&)> event = {};
  std::vector<End> ends = {};
  std::vector<std::string> words = {"--nnodes", "2"};
  int num_hosts_to_heal = 0;  ///< the row cuts or loses: these hosts are healed afterwards
};

/// A row being played: its launchers, what they said, when they ended. A check that fails is noted with what the
/// launchers said, and the row goes on.
class Stage {
 public:
  Stage(const Row& row, HostSet& hosts, uint16_t port);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage();

  void play();
  std::string failures() const { return failures_; }
  /// A line for the table: what was measured.
  std::string measured() const { return measured_; }

  // ---- for events
  void start(size_t node);
  void signal(size_t node, int number);
  /// The event happens now: times count from here. The last call holds.
  void mark() { marked_ = Clock::now(); }
  double since_mark() const { return seconds_since(marked_); }
  /// Until all these files are in the row's folder, which workers know as $DIR.
  void await_files(const std::vector<std::string>& names);
  void touch(const std::string& name);
  std::string read(const std::string& name) const;
  /// Checks that a launcher says this between `at_least` and `at_most` seconds after mark().
  void await_text(size_t node, const std::string& text, double at_most, double at_least = 0);
  void await_end(size_t node, double at_most);
  void sleep_until(double since_mark_s);
  void check(bool holds, const std::string& text);
  std::string err(size_t node) const;
  HostSet& hosts() { return hosts_; }
  uint16_t port() const { return port_; }
  fs::path folder() const { return folder_.path(); }
  void note(const std::string& text) { measured_ += (measured_.empty() ? "" : ", ") + text; }

 private:
  struct Launcher {
    pid_t pid = -1;
    std::optional<int> code = {};
    double ended_s = -1;  ///< after the last mark() before it was seen
    bool was_killed = false;
  };
  void reap();
  bool await(const std::function<bool()>& holds, Milliseconds longest);
  void check_end(const End& end);
  void check_nothing_is_left();
  std::vector<pid_t> living() const;
  fs::path node_folder(size_t node) const { return folder_.path() / ("node" + std::to_string(node)); }

  const Row& row_;
  HostSet& hosts_;
  uint16_t port_;
  TempFolder folder_{"lockstep-kill"};
  std::string token_;  ///< in the environment of all of the row's processes
  Clock::time_point marked_ = Clock::now();
  std::vector<Launcher> launchers_;
  std::string failures_;
  std::string measured_;
};

/// Words for scripts: a file in the row's folder says that the worker runs (ready.RANK.RESTARTS).
inline const std::string kReady = ": > $DIR/ready.$RANK.$TORCHELASTIC_RESTART_COUNT; ";
/// Until the test touches $DIR/go.
inline const std::string kAwaitGo = "while [ ! -e $DIR/go ]; do sleep 0.02; done; ";
inline const std::string kWaits = kReady + kAwaitGo;
inline const std::string kForever = "exec sleep 600";
/// For workers that ignore signals: the shell must stay.
inline const std::string kEver = "while :; do sleep 0.05; done";

std::vector<std::string> ready(int num_workers, int restarts = 0);

std::vector<Row> worker_and_agent_rows();
std::vector<Row> network_rows();
std::vector<Row> meeting_rows();
std::vector<Row> stranger_rows();

}  // namespace lockstep::hosts
