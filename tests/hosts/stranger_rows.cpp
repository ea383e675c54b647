// Rows: other programs and other jobs at the port where nodes meet.
#include "hosts/stage.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <thread>

namespace lockstep::hosts {
namespace {


sockaddr_in address_of(const char* host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

/// Another program's listener on the host: greets whoever connects, or says nothing.
class OtherProgram {
 public:
  OtherProgram(HostSet& hosts, int host, uint16_t port, const std::string& greeting) {
    hosts.inside(host, [&] {
      listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = address_of("0.0.0.0", port);
      if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener_.get(), 64) != 0) {
        throw std::runtime_error("the other program cannot listen");
      }
    });
    thread_ = std::thread([this, greeting] {
      std::vector<UniqueFd> taken;
      for (;;) {
        taken.emplace_back(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (taken.back().get() < 0) return;
        if (!greeting.empty()) send(taken.back().get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
      }
    });
  }
  ~OtherProgram() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

UniqueFd connect_to(uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of("10.77.0.1", port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

/// Says `bytes` to the meeting's port, waits for the other end to close if told to, and goes.
void say(Stage& stage, const std::string& bytes, bool awaits_close) {
  UniqueFd fd = connect_to(stage.port());
  if (fd.get() < 0) return stage.check(false, "a stranger cannot connect");
  send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const timeval longest = {.tv_sec = 5, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  char buffer[4096];
  ssize_t got = 1;
  while (awaits_close && got > 0) got = recv(fd.get(), buffer, sizeof buffer, 0);
  stage.check(!awaits_close || got == 0 || errno == ECONNRESET, "a stranger's connection was not closed");
}

Row strangers_row() {
  return {.name = "strangers_during_the_run",
          .nodes = {{.host = 0, .script = kWaits}, {.host = 1, .script = kWaits}},
          .event = [](Stage& stage) {
            stage.await_files(ready(2));
            stage.mark();
            stage.hosts().inside(2, [&] {
              say(stage, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", true);
              say(stage, std::string("LSR1\xff\xff\xff\x7f\x01", 9), true);
              say(stage, "LSR9whatever", true);
              say(stage, std::string(1 << 20, '\x16'), false);
              say(stage, "", false);
              std::vector<UniqueFd> many;
              for (int i = 0; i < 200; ++i) many.push_back(connect_to(stage.port()));
              for (int i = 0; i < 200; ++i) connect_to(stage.port());
            });
            stage.note(fmt::format("strangers done {:.2f} s", stage.since_mark()));
            stage.sleep_until(stage.since_mark() + 0.5);
            stage.check(stage.err(0).find("is lost") == std::string::npos, "strangers cost a node");
            const std::string said = stage.err(0);
            const auto lines = std::count(said.begin(), said.end(), '\n');
            stage.check(lines < 100, fmt::format("{} lines about strangers", lines));
            stage.touch("go");
          },
          .ends = {{.node = 0, .code = 0, .says = {"10.77.0.3"}, .within_s = 6}, {.node = 1, .code = 0, .within_s = 6}}};
}

Row port_taken_row(const std::string& name, const std::string& greeting, std::vector<std::string> says, std::vector<std::string> words,
                   int code, const std::string& conf_of_host = "join_timeout=2") {
  return {.name = name,
          .nodes = {{.host = 0, .words = {"--rdzv_conf", conf_of_host}, .script = "exit 0", .starts_late = true},
                    {.host = 1, .script = "exit 0", .starts_late = true}},
          .event = [=](Stage& stage) {
            const OtherProgram other(stage.hosts(), 0, stage.port(), greeting);
            stage.mark();
            stage.start(0);
            stage.start(1);
            stage.await_end(0, 4);
            stage.await_end(1, 4);
          },
          .ends = {{.node = 0, .code = code, .says = says, .within_s = 4}, {.node = 1, .code = 6, .says = {"10.77.0.1:"}, .within_s = 4}},
          .words = std::move(words)};
}

Row two_jobs_row() {
  const std::vector<std::string> a = {"--rdzv_id", "a"};
  const std::vector<std::string> b = {"--rdzv_id", "b"};
  const std::string refused = "it belongs to the job 'b' and here meets the job 'a'";
  return {.name = "two_jobs_at_one_endpoint",
          .nodes = {{.host = 0, .words = a, .script = kWaits},
                    {.host = 1, .words = a, .script = kWaits},
                    {.host = 0, .words = b, .script = "exit 0", .starts_late = true},
                    {.host = 2, .words = b, .script = "exit 0", .starts_late = true}},
          .event = [](Stage& stage) {
            stage.await_files(ready(2));
            stage.mark();
            stage.start(2);
            stage.start(3);
            stage.await_end(2, 2);
            stage.await_end(3, 2);
            stage.touch("go");
          },
          .ends = {{.node = 2, .code = 2, .says = {refused}},
                   {.node = 3, .code = 2, .says = {refused}},
                   {.node = 0, .code = 0, .says = {refused}, .within_s = 4},
                   {.node = 1, .code = 0, .within_s = 4}}};
}

/// The job before at the same endpoint ends: one worker has failed, another one takes 2 s to save.
Row next_job_row(const std::string& name, std::vector<std::string> words_of_host) {
  const std::vector<std::string> a = {"--rdzv_id", "a"};
  const std::vector<std::string> b = {"--rdzv_id", "b"};
  std::vector<std::string> first = b;
  first.insert(first.end(), words_of_host.begin(), words_of_host.end());
  return {.name = name,
          .nodes = {{.host = 0, .words = a, .script = "trap \"sleep 2; exit 0\" TERM; " + kReady + kEver},
                    {.host = 1, .words = a, .script = kReady + kAwaitGo + "exit 7"},
                    {.host = 0, .words = first, .script = "exit 0", .starts_late = true},
                    {.host = 1, .words = b, .script = "exit 0", .starts_late = true}},
          .event = [](Stage& stage) {
            stage.await_files(ready(2));
            stage.mark();
            stage.touch("go");
            stage.await_text(0, "the workers here are stopped", 1);
            stage.start(2);
            stage.start(3);
          },
          .ends = {{.node = 1, .code = 7, .within_s = 4}, {.node = 0, .code = 7, .within_s = 4},
                   {.node = 2, .code = 0, .within_s = 5.5}, {.node = 3, .code = 0, .within_s = 5.5}}};
}

}  // namespace

std::vector<Row> stranger_rows() {
  const std::vector<std::string> words = {"--nnodes", "2", "--rdzv_conf", "join_timeout=2"};
  return {strangers_row(),
          two_jobs_row(),
          next_job_row("next_job_starts_while_the_last_one_ends", {}),
          next_job_row("next_job_starts_while_the_last_one_ends_and_must_serve", {"--rdzv_conf", "is_host=1"}),
          port_taken_row("port_taken_by_a_program_that_talks", "SSH-2.0-OpenSSH_9.2\r\n",
                         {"is no coordinator of lockstep", "SSH-2.0-OpenSSH_9.2"}, words, 6),
          port_taken_row("port_taken_by_a_program_that_is_silent", "", {"accepted the connection and has not answered"}, words, 6),
          port_taken_row("port_taken_where_this_host_must_serve", "SSH-2.0-OpenSSH_9.2\r\n", {"another program has the port of the endpoint"},
                         words, 4, "join_timeout=2,is_host=1")};
}

}  // namespace lockstep::hosts
