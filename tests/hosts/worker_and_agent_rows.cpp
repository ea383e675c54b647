// Rows: how workers end, and signals to launchers.
#include "hosts/stage.h"

#include <fmt/format.h>

#include <csignal>

namespace lockstep::hosts {
namespace {

const std::string kIgnoring = "trap '' TERM INT; ";

NodePlan node_that(int host, const std::string& script, std::vector<std::string> words = {}) {
  return {.host = host, .words = std::move(words), .script = script};
}

/// Both workers run, then `act` happens.
std::function<void(Stage&)> once_ready(const std::function<void(Stage&)>& act, int num_workers = 2) {
  return [=](Stage& stage) {
    stage.await_files(ready(num_workers));
    stage.mark();
    act(stage);
  };
}

std::function<void(Stage&)> signalled(size_t which, int number) {
  return once_ready([=](Stage& stage) { stage.signal(which, number); });
}

void go(Stage& stage) { stage.touch("go"); }

std::vector<Row> worker_rows() {
  std::vector<Row> rows;
  rows.push_back({.name = "worker_exits_7",
                  .nodes = {node_that(0, kReady + kForever, {"--nproc_per_node", "2"}),
                            node_that(1, kReady + kAwaitGo + "[ $RANK = 3 ] && exit 7; " + kForever, {"--nproc_per_node", "2"})},
                  .event = once_ready(go, 4),
                  .ends = {{.node = 1, .code = 7, .says = {"rank 3 (pid ", "failed first: exit code 7"}},
                           {.node = 0, .code = 7, .says = {"the job failed on n1: rank 3 (pid ", "exit code 7"}}}});
  rows.push_back({.name = "worker_killed_by_signal",
                  .nodes = {node_that(0, kReady + kAwaitGo + "kill -SEGV $$"), node_that(1, kReady + kForever)},
                  .event = once_ready(go),
                  .ends = {{.node = 0, .code = 139, .says = {"killed by SIGSEGV, exit code 139"}},
                           {.node = 1, .code = 139, .says = {"the job failed on n0: rank 0 (pid ", "killed by SIGSEGV"}}}});
  rows.push_back({.name = "worker_hangs_at_exit",
                  .nodes = {node_that(0, kIgnoring + kReady + kEver), node_that(1, kReady + kAwaitGo + "exit 3")},
                  .event = once_ready(go),
                  .ends = {{.node = 0, .code = 3, .says = {"the job failed on n1"}, .within_s = 3},
                           {.node = 1, .code = 3, .within_s = 3}},
                  .words = {"--nnodes", "2", "--shutdown_timeout", "1"}});
  rows.push_back({.name = "workers_fail_on_both_nodes_at_once",
                  .nodes = {node_that(0, kReady + kAwaitGo + "exit 4"), node_that(1, kReady + kAwaitGo + "exit 4")},
                  .event = once_ready(go),
                  .ends = {{.node = 0, .code = 4}, {.node = 1, .code = 4}}});
  return rows;
}

/// One round fails on node 1, the next one ends well.
std::vector<Row> restart_rows() {
  const std::string fails_once = kReady + "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then " + kAwaitGo + " exit 9; fi; ";
  const std::string lasts_once = kReady + "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && " + kForever + "; ";
  const std::string after = "echo $TORCHELASTIC_RESTART_COUNT > $DIR/count.$RANK; exit 0";
  const std::vector<std::string> words = {"--nnodes", "2", "--max_restarts", "2"};
  std::vector<Row> rows;
  rows.push_back({.name = "restart_on_both_nodes",
                  .nodes = {node_that(0, lasts_once + after), node_that(1, fails_once + after)},
                  .event = once_ready([](Stage& stage) {
                    go(stage);
                    stage.await_files(ready(2, 1));
                    const double span = stage.since_mark();
                    stage.check(span < 0.6, fmt::format("workers ran again only after {:.2f} s", span));
                    stage.note(fmt::format("running again after {:.2f} s", span));
                    stage.await_end(0, 2);
                    stage.check(stage.read("count.0") == "1\n" && stage.read("count.1") == "1\n", "restart counts differ");
                  }),
                  .ends = {{.node = 0, .code = 0, .says = {"restart 1 of 2", "rank 1 (pid ", "exit code 9"}}, {.node = 1, .code = 0}},
                  .words = words});
  rows.push_back({.name = "restarts_used_up",
                  .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kAwaitGo + "exit 9")},
                  .event = once_ready(go),
                  .ends = {{.node = 0, .code = 9, .says = {"restart 1 of 2", "restart 2 of 2", "the job failed on n1"}},
                           {.node = 1, .code = 9}},
                  .words = words});
  rows.push_back({.name = "lost_node_is_replaced",
                  .nodes = {node_that(0, lasts_once + after), node_that(1, lasts_once + after), node_that(1, lasts_once + after)},
                  .event = once_ready([](Stage& stage) {
                    stage.signal(1, SIGKILL);
                    stage.await_text(0, "the workers here are stopped and started again", 2);
                    stage.mark();
                    stage.start(2);
                    stage.await_end(0, 2);
                    stage.check(stage.read("count.0") == "1\n" && stage.read("count.1") == "1\n", "restart counts differ");
                  }),
                  .ends = {{.node = 1, .code = 137}, {.node = 0, .code = 0, .says = {"restart 1 of 2"}}, {.node = 2, .code = 0}},
                  .words = words});
  rows.back().nodes[2].starts_late = true;
  rows.push_back({.name = "lost_node_is_not_replaced",
                  .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kForever)},
                  .event = once_ready([](Stage& stage) { stage.signal(1, SIGKILL); }),
                  .ends = {{.node = 1, .code = 137},
                           {.node = 0, .code = 6, .says = {"1 of 2 nodes here: n0 (10.77.0.1); missing: 1 node", "Why a restart was due: n1 ("},
                            .within_s = 4}},
                  .words = {"--nnodes", "2", "--max_restarts", "2", "--rdzv_conf", "join_timeout=2"}});
  rows.push_back({.name = "lost_node_is_not_needed",
                  .nodes = {node_that(0, lasts_once + after), node_that(1, lasts_once + after)},
                  .event = once_ready([](Stage& stage) {
                    stage.signal(1, SIGKILL);
                    stage.await_files({"ready.0.1"});
                    const double span = stage.since_mark();
                    stage.check(span < 0.6, fmt::format("workers ran again only after {:.2f} s", span));
                    stage.note(fmt::format("running again after {:.2f} s", span));
                  }),
                  .ends = {{.node = 1, .code = 137}, {.node = 0, .code = 0, .says = {"n1 (10.77.0.2) is lost", "restart 1 of 2"}}},
                  .words = {"--nnodes", "1:2", "--max_restarts", "2"}});
  return rows;
}

std::vector<Row> agent_rows() {
  std::vector<Row> rows;
  for (const auto& [name, number] : {std::pair{"TERM", SIGTERM}, {"HUP", SIGHUP}, {"QUIT", SIGQUIT}}) {
    rows.push_back({.name = fmt::format("agent_SIG{}", name),
                    .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kForever)},
                    .event = signalled(1, number),
                    .ends = {{.node = 1, .code = 128 + number, .says = {fmt::format("stopped by SIG{}", name)}},
                             {.node = 0, .code = 128 + number,
                              .says = {fmt::format("the job failed on n1: the launcher was stopped by SIG{}", name)}}}});
  }
  rows.push_back({.name = "agent_SIGTERM_and_workers_that_save_for_3_s",
                  .nodes = {node_that(0, kReady + kForever),
                            node_that(1, "trap 'sleep 3; echo saved > $DIR/saved; exit 0' TERM; " + kReady + kEver)},
                  .event = once_ready([](Stage& stage) {
                    stage.signal(1, SIGTERM);
                    stage.await_text(0, "n1: the launcher was stopped by SIGTERM; the workers here are stopped", 1);
                    stage.await_end(1, 5);
                    stage.check(stage.read("saved") == "saved\n", "the worker did not get its time");
                  }),
                  .ends = {{.node = 0, .code = 143, .within_s = 5}, {.node = 1, .code = 0, .within_s = 5}}});
  rows.push_back({.name = "coordinator_SIGTERM",
                  .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kForever)},
                  .event = signalled(0, SIGTERM),
                  .ends = {{.node = 0, .code = 143, .says = {"stopped by SIGTERM"}},
                           {.node = 1, .code = 143, .says = {"n0: the launcher was stopped by SIGTERM"}}}});
  for (const size_t which : {0, 1}) {
    const size_t other = 1 - which;
    rows.push_back({.name = which == 0 ? "coordinator_SIGINT_twice" : "agent_SIGINT_twice",
                    .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kForever)},
                    .event = once_ready([which](Stage& stage) {
                      stage.signal(which, SIGINT);
                      stage.await_text(which, "a second one kills them", 1);
                      stage.mark();
                      stage.signal(which, SIGINT);
                    }),
                    .ends = {{.node = which, .code = 130, .says = {"killing the workers"}},
                             {.node = other, .code = 130, .says = {"the launcher was stopped by SIGINT"}}}});
    rows.back().nodes[which].script = kIgnoring + kReady + kEver;
  }
  rows.push_back({.name = "agent_SIGHUP_under_nohup",
                  .nodes = {{.host = 0, .script = kReady + kAwaitGo}, {.host = 1, .script = kReady + kAwaitGo, .before = "exec nohup"}},
                  .event = once_ready([](Stage& stage) {
                    stage.signal(1, SIGHUP);
                    stage.sleep_until(0.5);
                    go(stage);
                  }),
                  .ends = {{.node = 0, .code = 0}, {.node = 1, .code = 0}}});
  rows.push_back({.name = "SIGINT_to_a_node_whose_workers_are_done",
                  .nodes = {node_that(0, kReady + kAwaitGo), node_that(1, kReady + ": > $DIR/done")},
                  .event = [](Stage& stage) {
                    stage.await_files({"ready.0.0", "done"});
                    stage.sleep_until(stage.since_mark() + 0.3);
                    stage.mark();
                    stage.signal(1, SIGINT);
                    stage.await_end(1, 2);
                    stage.touch("go");
                  },
                  .ends = {{.node = 1, .code = 0}, {.node = 0, .code = 0, .within_s = 3}}});
  rows.push_back({.name = "agent_SIGKILL",
                  .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kForever)},
                  .event = signalled(1, SIGKILL),
                  .ends = {{.node = 1, .code = 137},
                           {.node = 0, .code = 5, .says = {"n1 (10.77.0.2) is lost: its connection ended"}}}});
  rows.push_back({.name = "coordinator_SIGKILL",
                  .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kForever)},
                  .event = signalled(0, SIGKILL),
                  .ends = {{.node = 0, .code = 137},
                           {.node = 1, .code = 5, .says = {"the coordinator at 10.77.0.1:", "the workers here are stopped"}}}});
  rows.push_back({.name = "agent_stopped_for_good",
                  .nodes = {node_that(0, kReady + kForever), node_that(1, kReady + kForever)},
                  .event = once_ready([](Stage& stage) {
                    stage.signal(1, SIGSTOP);
                    stage.await_text(0, "n1 (10.77.0.2) has been silent for", 2.6, 1.2);
                    stage.await_end(0, 6.5);
                    stage.mark();
                    stage.signal(1, SIGCONT);
                  }),
                  .ends = {{.node = 0, .code = 5, .says = {"n1 (10.77.0.2) is lost: silent for 5"}, .within_s = 7},
                           {.node = 1, .code = 5}}});
  rows.push_back({.name = "coordinator_stopped_for_3_s",
                  .nodes = {node_that(0, kReady + kAwaitGo), node_that(1, kReady + kAwaitGo)},
                  .event = once_ready([](Stage& stage) {
                    stage.signal(0, SIGSTOP);
                    stage.await_text(1, "has been silent for", 2.6, 1.2);
                    stage.sleep_until(3);
                    stage.signal(0, SIGCONT);
                    stage.await_text(1, "is heard again", 4, 3);
                    go(stage);
                  }),
                  .ends = {{.node = 0, .code = 0, .within_s = 6}, {.node = 1, .code = 0, .within_s = 6}}});
  return rows;
}

}  // namespace

std::vector<Row> worker_and_agent_rows() {
  std::vector<Row> rows = worker_rows();
  for (const auto& more : {restart_rows(), agent_rows()}) rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace lockstep::hosts
