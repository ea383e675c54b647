// Rows: the network between the hosts, addresses, disks, clocks.
#include "hosts/stage.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>

namespace lockstep::hosts {
namespace {

std::vector<NodePlan> two(const std::string& script) {
  return {{.host = 0, .script = script}, {.host = 1, .script = script}};
}

/// Each side may notice by itself or hear of it from the other; both must end.
Row cut_row(int host, const std::string& kind) {
  const std::string words = fmt::format("cut {}{}", host, kind.empty() ? "" : " " + kind);
  // With one direction left, one side is the first to know, and the other one is told or sees the connection end.
  const bool node_0_is_deaf = kind.empty() || kind == "link" || (host == 0) == (kind == "in");
  const bool node_1_is_deaf = kind.empty() || kind == "link" || !node_0_is_deaf;
  Row row{.name = fmt::format("cut_{}_{}", kind.empty() ? "all" : kind, host == 0 ? "coordinator" : "agent"),
          .nodes = two(kReady + kForever),
          .event = [=](Stage& stage) {
            stage.await_files(ready(2));
            stage.mark();
            stage.hosts().tool(words);
            const size_t deaf = node_0_is_deaf ? 0 : 1;
            stage.await_text(deaf, "silent for", 2.6, 1.2);
            stage.await_end(deaf, 9);
          },
          .num_hosts_to_heal = 2};
  const std::string lost_by_0 = "n1 (10.77.0.2) is lost: ";
  const std::string lost_by_1 = "the coordinator at 10.77.0.1:";
  row.ends = {{.node = 0, .code = 5, .says = {lost_by_0}, .within_s = node_0_is_deaf && node_1_is_deaf ? 6.5 : 11},
              {.node = 1, .code = 5, .says = {lost_by_1}, .within_s = node_0_is_deaf && node_1_is_deaf ? 6.5 : 11}};
  return row;
}

/// KILL_MATRIX_LOSS_S=300 makes the long test of it.
double loss_s() {
  const char* text = std::getenv("KILL_MATRIX_LOSS_S");
  return text == nullptr ? 20 : std::atof(text);
}

std::vector<Row> cut_rows() {
  std::vector<Row> rows;
  for (const int host : {0, 1}) {
    for (const char* kind : {"", "link", "in", "out"}) rows.push_back(cut_row(host, kind));
  }
  rows.push_back({.name = "cut_healed_after_3_s",
                  .nodes = two(kReady + kAwaitGo),
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.mark();
                    stage.hosts().tool("cut 1");
                    stage.await_text(0, "has been silent for", 2.6, 1.2);
                    stage.await_text(1, "has been silent for", 2.6, 1.2);
                    stage.sleep_until(3);
                    stage.hosts().tool("heal 1");
                    stage.await_text(0, "is heard again", 4.5, 3);
                    stage.await_text(1, "is heard again", 4.5, 3);
                    stage.touch("go");
                  },
                  .ends = {{.node = 0, .code = 0, .within_s = 7}, {.node = 1, .code = 0, .within_s = 7}},
                  .num_hosts_to_heal = 2});
  rows.push_back({.name = "cut_over_the_end_healed_after_4_s",
                  .nodes = two(kReady + kAwaitGo),
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.mark();
                    stage.hosts().tool("cut 1 in");
                    stage.touch("go");
                    stage.sleep_until(4);
                    stage.hosts().tool("heal 1");
                  },
                  .ends = {{.node = 0, .code = 0, .says = {"the job has ended well; waiting up to 5 s for n1 (10.77.0.2)"},
                            .within_s = 8},
                           {.node = 1, .code = 0, .within_s = 8}},
                  .num_hosts_to_heal = 2});
  rows.push_back({.name = "cut_over_a_stop_healed_after_4_s",
                  .nodes = two(kReady + kForever),
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.mark();
                    stage.hosts().tool("cut 1");
                    stage.signal(1, SIGTERM);
                    stage.sleep_until(3.9);
                    stage.hosts().tool("heal 1");
                  },
                  .ends = {{.node = 0, .code = 143, .says = {"the launcher was stopped by SIGTERM"}, .within_s = 8},
                           {.node = 1, .code = 143, .within_s = 8}},
                  .num_hosts_to_heal = 2});
  rows.push_back({.name = "lose_30_percent",
                  .nodes = two(kReady + kAwaitGo),
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.mark();
                    stage.hosts().tool("lose 0 30");
                    stage.hosts().tool("lose 1 30");
                    stage.sleep_until(loss_s());
                    stage.hosts().tool("heal 0");
                    stage.hosts().tool("heal 1");
                    stage.mark();
                    stage.touch("go");
                    stage.check(stage.err(0).find("is lost") == std::string::npos, "a node was called dead");
                  },
                  // A connection may stall for seconds; datagrams bring the news.
                  .ends = {{.node = 0, .code = 0, .within_s = 5}, {.node = 1, .code = 0, .within_s = 5}},
                  .num_hosts_to_heal = 2});
  rows.push_back({.name = "lose_30_percent_to_the_end",
                  .nodes = two(kReady + kAwaitGo),
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.hosts().tool("lose 0 30");
                    stage.hosts().tool("lose 1 30");
                    stage.mark();
                    stage.sleep_until(loss_s());
                    stage.mark();
                    stage.touch("go");
                    stage.check(stage.err(0).find("is lost") == std::string::npos, "a node was called dead");
                  },
                  .ends = {{.node = 0, .code = 0, .within_s = 5}, {.node = 1, .code = 0, .within_s = 5}},
                  .num_hosts_to_heal = 2});
  rows.push_back({.name = "lose_30_percent_while_a_worker_fails",
                  .nodes = {{.host = 0, .script = kReady + kForever}, {.host = 1, .script = kReady + kAwaitGo + "exit 7"}},
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.hosts().tool("lose 0 30");
                    stage.hosts().tool("lose 1 30");
                    stage.mark();
                    stage.sleep_until(5);
                    stage.mark();
                    stage.touch("go");
                  },
                  .ends = {{.node = 0, .code = 7, .says = {"n1: rank 1"}, .within_s = 5}, {.node = 1, .code = 7, .within_s = 5}},
                  .num_hosts_to_heal = 2});
  return rows;
}

Row ipv6_row() {
  Row row{.name = "ipv6_only",
          .nodes = {{.host = 0, .script = kReady + kAwaitGo + "echo $MASTER_ADDR > $DIR/master.0", .starts_late = true,
                     .endpoint = "[fd00::1]:PORT"},
                    {.host = 1, .script = kReady + kAwaitGo + "echo $MASTER_ADDR > $DIR/master.1", .starts_late = true,
                     .endpoint = "[fd00::1]:PORT"}},
          .event = [](Stage& stage) {
            for (const int host : {0, 1}) {
              stage.hosts().shell(host, fmt::format("ip addr del 10.77.0.{0}/24 dev eth0; ip -6 addr add fd00::{0}/64 dev eth0 nodad",
                                                    host + 1));
            }
            stage.mark();
            stage.start(0);
            stage.start(1);
            stage.await_files(ready(2));
            stage.touch("go");
            stage.await_end(0, 4);
            stage.await_end(1, 4);
            for (const int host : {0, 1}) {
              stage.check(stage.read(fmt::format("master.{}", host)) == "fd00::1\n", "MASTER_ADDR is not fd00::1");
              stage.hosts().shell(host, fmt::format("ip addr add 10.77.0.{0}/24 dev eth0; ip -6 addr del fd00::{0}/64 dev eth0",
                                                    host + 1));
            }
          },
          .ends = {{.node = 0, .code = 0, .says = {"workers meet at fd00::1:"}, .within_s = 4}, {.node = 1, .code = 0, .within_s = 4}}};
  return row;
}

/// The clock that programs see goes an hour ahead and an hour back, by way of a preloaded library.
Row clock_row() {
  const std::string script = "date +%s > $DIR/before.$RANK; " + kReady + "while [ ! -e $DIR/stepped ]; do sleep 0.02; done; "
                             "date +%s > $DIR/after.$RANK; : > $DIR/seen.$RANK; " + kAwaitGo;
  Row row{.name = "clock_step",
          .nodes = two(script),
          .event = [](Stage& stage) {
            stage.await_files(ready(2));
            write_file_atomically(stage.folder() / "offset.1", "3600");
            write_file_atomically(stage.folder() / "offset.0", "-3600");
            stage.touch("stepped");
            stage.await_files({"seen.0", "seen.1"});
            for (const int rank : {0, 1}) {
              const long step = std::atol(stage.read(fmt::format("after.{}", rank)).c_str()) -
                                std::atol(stage.read(fmt::format("before.{}", rank)).c_str());
              stage.check(std::abs(step) > 3500, "the clock did not step");
            }
            stage.mark();
            stage.sleep_until(2);
            for (const size_t node : {0, 1}) {
              stage.check(stage.err(node).find("silent") == std::string::npos, "a clock step was taken for silence");
            }
            stage.touch("go");
          },
          .ends = {{.node = 0, .code = 0, .within_s = 4}, {.node = 1, .code = 0, .within_s = 4}}};
  for (NodePlan& node : row.nodes) {
    node.before = fmt::format("export LD_PRELOAD={} CLOCK_OFFSET_FILE=$DIR/offset.{}; exec", KILL_CLOCK_LIBRARY, node.host);
  }
  return row;
}

std::vector<Row> place_rows() {
  std::vector<Row> rows;
  rows.push_back({.name = "log_disk_full",
                  .nodes = two(kReady + kAwaitGo + "yes 0123456789 | head -c 300000; exit 0"),
                  .event = [](Stage& stage) {
                    stage.await_files(ready(2));
                    stage.mark();
                    stage.touch("go");
                  },
                  .ends = {{.node = 0, .code = 0, .within_s = 4},
                           {.node = 1, .code = 0, .says = {"log files cannot be written", "No space left on device"}, .within_s = 4}}});
  rows.back().nodes[1].before = "mkdir $DIR/logs && mount -t tmpfs -o size=64k none $DIR/logs && exec";
  rows.back().words = {"--nnodes", "2", "--redirects", "3", "--tee", "3"};
  rows.back().nodes[1].words = {"--log_dir", "$DIR/logs"};
  rows.push_back({.name = "log_folder_cannot_be_made",
                  .nodes = two(kReady + kForever),
                  .event = [](Stage& stage) { stage.mark(); },
                  .ends = {{.node = 0, .code = 4, .says = {"n1: the log folder cannot be made: /proc/nowhere"}},
                           {.node = 1, .code = 4, .says = {"the log folder cannot be made: /proc/nowhere"}}}});
  rows.back().nodes[1].words = {"--redirects", "3", "--log_dir", "/proc/nowhere"};
  rows.push_back({.name = "own_name_cannot_be_resolved",
                  .nodes = {{.host = 0, .script = "exit 0", .host_name = "no-such-host.invalid"},
                            {.host = 1, .script = "exit 0", .host_name = "other.invalid"}},
                  .event = [](Stage& stage) { stage.mark(); },
                  .ends = {{.node = 0, .code = 0, .says = {"no-such-host.invalid (10.77.0.1) x 1"}}, {.node = 1, .code = 0}}});
  rows.push_back({.name = "endpoint_is_a_name_that_nobody_resolves_but_its_owner_knows",
                  .nodes = {{.host = 0, .script = "exit 0", .endpoint = "n0:PORT"}, {.host = 1, .script = "exit 0"}},
                  .event = [](Stage& stage) { stage.mark(); },
                  .ends = {{.node = 0, .code = 0, .within_s = 8}, {.node = 1, .code = 0, .within_s = 8}}});
  return rows;
}

}  // namespace

std::vector<Row> network_rows() {
  std::vector<Row> rows = cut_rows();
  rows.push_back(ipv6_row());
  rows.push_back(clock_row());
  for (Row& row : place_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace lockstep::hosts
