// Rows: how nodes come together, or do not.
#include "hosts/stage.h"

#include <fmt/format.h>

#include <csignal>
#include <sstream>

namespace lockstep::hosts {
namespace {

const std::string kEndsWell = "exit 0";

NodePlan node(int host, std::vector<std::string> words = {}, const std::string& script = kEndsWell) {
  return {.host = host, .words = std::move(words), .script = script};
}

NodePlan late(int host, std::vector<std::string> words = {}, const std::string& script = kEndsWell) {
  NodePlan plan = node(host, std::move(words), script);
  plan.starts_late = true;
  return plan;
}

/// A connection of an agent to the coordinator stands.
void await_connection(Stage& stage, int host) {
  const std::string peer = fmt::format(":{:04X}", stage.port());
  const Deadline deadline = Deadline::in(Milliseconds(10'000));
  bool connected = false;
  while (!connected && !deadline.passed()) {
    stage.hosts().inside(host, [&] {
      for (const char* file : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}) {
        std::istringstream lines(read_file(file));
        for (std::string line; std::getline(lines, line);) {
          // "sl local remote state": 01 is established.
          std::istringstream words(line);
          std::string slot, local, remote, state;
          words >> slot >> local >> remote >> state;
          connected = connected || (state == "01" && remote.ends_with(peer));
        }
      }
    });
  }
  stage.check(connected, fmt::format("host {} is not connected", host));
}

std::vector<Row> refused_rows() {
  std::vector<Row> rows;
  // The one that is refused does not hurt the job: the right one comes later.
  rows.push_back({.name = "wrong_run_id",
                  .nodes = {node(0, {"--rdzv_id", "mine"}), node(1, {"--rdzv_id", "yours"}), late(2, {"--rdzv_id", "mine"})},
                  .event = [](Stage& stage) {
                    stage.await_end(1, 2);
                    stage.mark();
                    stage.start(2);
                  },
                  .ends = {{.node = 1, .code = 2, .says = {"it belongs to the job 'yours' and here meets the job 'mine' (--rdzv_id)"}},
                           {.node = 0, .code = 0, .says = {"it belongs to the job 'yours'"}},
                           {.node = 2, .code = 0}}});
  rows.push_back({.name = "wrong_token",
                  .nodes = {node(0), node(1), late(2)},
                  .event = [](Stage& stage) {
                    stage.await_end(1, 2);
                    stage.mark();
                    stage.start(2);
                  },
                  .ends = {{.node = 1, .code = 2, .says = {"the token of the coordinator at 10.77.0.1:", "is not this launcher's"}},
                           {.node = 0, .code = 0, .says = {"has another token than this job"}},
                           {.node = 2, .code = 0}}});
  rows.back().nodes[0].before = "export LOCKSTEP_JOB_TOKEN=0123456789abcdef0123456789abcdef; exec";
  rows.back().nodes[1].before = "export LOCKSTEP_JOB_TOKEN=0123456789abcdef0123456789abcdeX; exec";
  rows.back().nodes[2].before = rows.back().nodes[0].before;
  for (const size_t with : {0, 1}) {
    rows.push_back({.name = with == 0 ? "token_on_coordinator_only" : "token_on_agent_only",
                    .nodes = {node(0), node(1)},
                    .event = [](Stage& stage) { stage.mark(); },
                    .ends = {{.node = 1, .code = 2, .says = {"token", "--rdzv_conf token_file="}},
                             {.node = 0, .code = 6, .says = {"1 of 2 nodes here: n0 (", "missing: 1 node"}, .within_s = 4}},
                    .words = {"--nnodes", "2", "--rdzv_conf", "join_timeout=2"}});
    rows.back().nodes[with].before = "export LOCKSTEP_JOB_TOKEN=0123456789abcdef0123456789abcdef; exec";
  }
  rows.push_back({.name = "token_is_required_and_missing",
                  .nodes = {node(0), node(1)},
                  .event = [](Stage& stage) { stage.mark(); },
                  .ends = {{.node = 0, .code = 2, .says = {"require_token=1: there is no token", "token_file=FILE"}},
                           {.node = 1, .code = 2, .says = {"require_token=1: there is no token", "token_file=FILE"}}},
                  .words = {"--nnodes", "2", "--rdzv_conf", "require_token=1"}});
  rows.push_back({.name = "same_token_and_required",
                  .nodes = {node(0), node(1)},
                  .event = [](Stage& stage) { stage.mark(); },
                  .ends = {{.node = 0, .code = 0}, {.node = 1, .code = 0}},
                  .words = {"--nnodes", "2", "--rdzv_conf", "require_token=1"}});
  for (NodePlan& plan : rows.back().nodes) plan.before = "export LOCKSTEP_JOB_TOKEN=0123456789abcdef0123456789abcdef; exec";
  rows.push_back({.name = "surplus_node",
                  .nodes = {node(0, {}, kWaits), node(1, {}, kWaits), late(2)},
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.mark();
                    stage.start(2);
                    stage.await_end(2, 2);
                    stage.touch("go");
                  },
                  .ends = {{.node = 2, .code = 2, .says = {"the job already has all its 2 nodes: n0 (10.77.0.1), n1 (10.77.0.2)"}},
                           {.node = 0, .code = 0, .says = {"already has all its 2 nodes"}, .within_s = 4},
                           {.node = 1, .code = 0, .within_s = 4}}});
  rows.push_back({.name = "different_nnodes",
                  .nodes = {node(0, {"--nnodes", "2"}), late(1, {"--nnodes", "3"})},
                  .event = [](Stage& stage) {
                    stage.mark();
                    stage.start(1);
                  },
                  .ends = {{.node = 1, .code = 2, .says = {"--nnodes is 3:3 on that node and 2:2 where the nodes meet"}},
                           {.node = 0, .code = 6, .says = {"n1 (10.77.0.2): --nnodes is 3:3 on that node", "1 of 2 nodes here: n0 ("},
                            .within_s = 4}},
                  .words = {"--rdzv_conf", "join_timeout=3"}});
  return rows;
}

std::vector<Row> time_rows() {
  std::vector<Row> rows;
  rows.push_back({.name = "host_starts_last",
                  .nodes = {late(0), node(1)},
                  .event = [](Stage& stage) {
                    stage.await_text(1, "10.77.0.1", 6.5, 4.5);
                    stage.mark();
                    stage.start(0);
                  },
                  .ends = {{.node = 0, .code = 0}, {.node = 1, .code = 0, .says = {"refused"}}}});
  rows.push_back({.name = "third_node_late",
                  .nodes = {node(0), node(1), late(2)},
                  .event = [](Stage& stage) {
                    for (const size_t one : {0, 1}) {
                      stage.await_text(one, "waiting for nodes: 2 of 3 nodes here: ", 6.5, 4.5);
                      stage.check(stage.err(one).find("missing: 1 node") != std::string::npos, "does not say who is missing");
                    }
                    stage.mark();
                    stage.start(2);
                  },
                  .ends = {{.node = 0, .code = 0}, {.node = 1, .code = 0}, {.node = 2, .code = 0}},
                  .words = {"--nnodes", "3"}});
  const auto timed_out = [](size_t one) {
    return End{.node = one, .code = 6,
               .says = {"not all nodes came within 3.0 s: 2 of 3 nodes here: ", "n0 (10.77.0.1)", "n1 (10.77.0.2)", "missing: 1 node"},
               .within_s = 5};
  };
  rows.push_back({.name = "missing_node",
                  .nodes = {node(0), node(1)},
                  .ends = {timed_out(0), timed_out(1)},
                  .words = {"--nnodes", "3", "--rdzv_conf", "join_timeout=3"}});
  rows.push_back({.name = "missing_host",
                  .nodes = {node(1)},
                  .ends = {{.node = 0, .code = 6, .says = {"10.77.0.1:", "join_timeout"}, .within_s = 4}},
                  .words = {"--nnodes", "2", "--rdzv_conf", "join_timeout=2"}});
  rows.push_back({.name = "node_leaves_while_others_gather",
                  .nodes = {node(0), node(1), late(1), late(2)},
                  .event = [](Stage& stage) {
                    await_connection(stage, 1);
                    stage.sleep_until(stage.since_mark() + 0.3);
                    stage.mark();
                    stage.signal(1, SIGKILL);
                    stage.await_text(0, "n1 (10.77.0.2) is lost", 2);
                    stage.start(2);
                    stage.start(3);
                  },
                  .ends = {{.node = 1, .code = 137}, {.node = 0, .code = 0, .within_s = 4}, {.node = 2, .code = 0, .within_s = 4},
                           {.node = 3, .code = 0, .within_s = 4}},
                  .words = {"--nnodes", "3"}});
  rows.push_back({.name = "coordinator_SIGKILL_while_nodes_gather",
                  .nodes = {node(0), node(1)},
                  .event = [](Stage& stage) {
                    await_connection(stage, 1);
                    stage.sleep_until(stage.since_mark() + 0.3);
                    stage.mark();
                    stage.signal(0, SIGKILL);
                  },
                  .ends = {{.node = 0, .code = 137},
                           {.node = 1, .code = 5, .says = {"the connection to the coordinator at 10.77.0.1:"}}},
                  .words = {"--nnodes", "3"}});
  rows.push_back({.name = "SIGINT_while_waiting_for_nodes",
                  .nodes = {node(0), node(1)},
                  .event = [](Stage& stage) {
                    await_connection(stage, 1);
                    stage.sleep_until(stage.since_mark() + 0.3);
                    stage.mark();
                    stage.signal(0, SIGINT);
                  },
                  .ends = {{.node = 0, .code = 130, .says = {"the launcher was stopped by SIGINT before its workers had started"}},
                           {.node = 1, .code = 130, .says = {"n0: the launcher was stopped by SIGINT"}}},
                  .words = {"--nnodes", "3"}});
  return rows;
}

std::vector<Row> rank_rows() {
  std::vector<Row> rows;
  const std::string tells = "echo $RANK $WORLD_SIZE $GROUP_RANK > $DIR/rank.$RANK";
  rows.push_back({.name = "unequal_nproc",
                  .nodes = {node(0, {"--nproc_per_node", "1"}, tells), node(1, {"--nproc_per_node", "3"}, tells)},
                  .event = [](Stage& stage) {
                    stage.await_end(0, 3);
                    stage.check(stage.read("rank.0") == "0 4 0\n" && stage.read("rank.3") == "3 4 1\n", "ranks are wrong");
                  },
                  .ends = {{.node = 0, .code = 0, .says = {"unequal numbers of workers: 1 on n0, 3 on n1"}, .within_s = 3},
                           {.node = 1, .code = 0, .within_s = 3}}});
  rows.push_back({.name = "equal_node_rank_c10d",
                  .nodes = {node(0, {"--node_rank", "1"}, tells), node(1, {"--node_rank", "1"}, tells)},
                  .event = [](Stage& stage) {
                    stage.await_end(0, 3);
                    stage.check(stage.read("rank.0") == "0 2 0\n" && stage.read("rank.1") == "1 2 1\n", "ranks are wrong");
                  },
                  .ends = {{.node = 0, .code = 0,
                            .says = {"n0 (10.77.0.1) and n1 (10.77.0.2) both have --node_rank 1"}, .within_s = 3},
                           {.node = 1, .code = 0, .within_s = 3}}});
  const auto at = [](int host, const char* rank) {
    NodePlan plan = node(host, {"--node_rank", rank});
    plan.endpoint = "none";
    plan.starts_late = true;
    return plan;
  };
  rows.push_back({.name = "equal_node_rank_static",
                  .nodes = {at(0, "0"), at(1, "1"), at(2, "1"), at(2, "2")},
                  .event = [](Stage& stage) {
                    stage.start(0);
                    stage.start(1);
                    await_connection(stage, 1);
                    stage.sleep_until(stage.since_mark() + 0.3);
                    stage.mark();
                    stage.start(2);
                    stage.await_end(2, 2);
                    stage.start(3);
                  },
                  .ends = {{.node = 2, .code = 2, .says = {"n1 (10.77.0.2) and n2 (10.77.0.3) both have --node_rank 1"}},
                           {.node = 0, .code = 0, .says = {"both have --node_rank 1"}, .within_s = 4},
                           {.node = 1, .code = 0, .within_s = 4},
                           {.node = 3, .code = 0, .within_s = 4}},
                  .words = {"--nnodes", "3"}});
  rows.push_back({.name = "node_rank_0_twice_static",
                  .nodes = {at(0, "0"), at(1, "0"), at(1, "1")},
                  .event = [](Stage& stage) {
                    stage.start(0);
                    await_connection(stage, 0);
                    stage.sleep_until(stage.since_mark() + 0.3);
                    stage.mark();
                    stage.start(1);
                    stage.await_end(1, 2);
                    stage.start(2);
                  },
                  .ends = {{.node = 1, .code = 2, .says = {"n0 (", "n1 (10.77.0.2) both have --node_rank 0"}},
                           {.node = 0, .code = 0, .within_s = 4},
                           {.node = 2, .code = 0, .within_s = 4}}});
  rows.push_back({.name = "node_rank_0_static_at_an_address_that_leads_here",
                  .nodes = {at(1, "0"), at(2, "1")},
                  .event = [](Stage& stage) {
                    // As where a load balancer or a container's port leads to the host of rank 0.
                    stage.hosts().shell(2, "nft add table ip nat && "
                                           "nft add chain ip nat out \"{ type nat hook output priority -100; }\" && "
                                           "nft add rule ip nat out ip daddr 10.77.0.1 dnat to 10.77.0.2");
                    stage.mark();
                    stage.start(0);
                    stage.start(1);
                    stage.await_end(0, 6);
                    stage.hosts().shell(2, "nft delete table ip nat");
                  },
                  .ends = {{.node = 0, .code = 0, .says = {"10.77.0.1 is no address of this host (n1)"}, .within_s = 6},
                           {.node = 1, .code = 0, .within_s = 6}}});
  return rows;
}

/// What would be guessed at otherwise.
std::vector<Row> told_rows() {
  std::vector<Row> rows;
  rows.push_back({.name = "host_cannot_take_part",
                  .nodes = {late(0), node(1)},
                  .event = [](Stage& stage) {
                    stage.sleep_until(stage.since_mark() + 0.3);
                    stage.mark();
                    stage.start(0);
                  },
                  .ends = {{.node = 1, .code = 4, .says = {"the job failed on n0: its launcher cannot take part: TMPDIR = '/no/such'"}},
                           {.node = 0, .code = 4, .says = {"the other nodes, which wait for it at 10.77.0.1:"}}}});
  rows.back().nodes[0].before = "export TMPDIR=/no/such; exec";
  rows.push_back({.name = "udp_is_blocked",
                  .nodes = {node(0, {}, kWaits), node(1, {}, kWaits)},
                  .event = [](Stage& stage) {
                    const std::string table = fmt::format("row{}", stage.port());
                    stage.hosts().shell(1, fmt::format("nft add table ip {0} && nft add chain ip {0} out "
                                                       "\"{{ type filter hook output priority 0; }}\" && "
                                                       "nft add rule ip {0} out udp dport {1} drop", table, stage.port()));
                    stage.mark();
                    stage.start(0);
                    stage.start(1);
                    stage.await_text(0, fmt::format("UDP port {} is blocked on the way from n1 (10.77.0.2)", stage.port()), 6, 2.5);
                    stage.touch("go");
                    stage.await_end(0, 8);
                    stage.hosts().shell(1, "nft delete table ip " + table);
                  },
                  .ends = {{.node = 0, .code = 0, .within_s = 8}, {.node = 1, .code = 0, .within_s = 8}}});
  for (NodePlan& plan : rows.back().nodes) plan.starts_late = true;
  rows.push_back({.name = "hosts_of_one_name",
                  .nodes = {node(0, {"--node_rank", "0"}, kForever), node(1, {"--node_rank", "1"}, kReady + "sleep 0.2; exit 7")},
                  .event = [](Stage& stage) {
                    stage.await_files({"ready.1.0"});
                    stage.mark();
                  },
                  .ends = {{.node = 0, .code = 7, .says = {"the job failed on node (10.77.0.2): rank 1 (pid "}},
                           {.node = 1, .code = 7}}});
  for (NodePlan& plan : rows.back().nodes) plan.host_name = "node";
  return rows;
}

}  // namespace

std::vector<Row> meeting_rows() {
  std::vector<Row> rows = refused_rows();
  for (const auto& more : {time_rows(), rank_rows(), told_rows()}) rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace lockstep::hosts
