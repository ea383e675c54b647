#include "lockstep/launch/doctor_network.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/doctor.h"
#include "lockstep/launch/doctor_clock.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <atomic>
#include <thread>

namespace lockstep::launch {
namespace {

using net::Address;
using net::Resolved;
constexpr Milliseconds kLong{10'000};
constexpr Milliseconds kShort{200};

net::Lookup answers(Resolved resolved) {
  return [resolved](const net::Endpoint& endpoint) {
    Resolved with_port = resolved;
    for (Address& address : with_port.addresses) address = address.with_port(endpoint.port);
    return with_port;
  };
}
net::Lookup finds(std::vector<Address> addresses) {
  return answers({.outcome = Resolved::Outcome::Found, .addresses = std::move(addresses)});
}
Address address(const char* host) { return *Address::parse(host, 0); }

/// `lockstep doctor --listen` on a free port, in a thread.
class Answering {
 public:
  Answering()
      : server_(loop_, net::ListenSocket::open(Address::loopback_v4(0), 0), "far host", "9.9",
                [this](const Address&) { ++num_visitors_; }),
        port_(server_.port()),
        thread_([this] {
          while (!stop_) loop_.run_once(Milliseconds(20));
        }) {}
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  ~Answering() {
    stop_ = true;
    thread_.join();
  }
  uint16_t port() const { return port_; }
  int num_visitors() const { return num_visitors_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> num_visitors_ = 0;
  net::EventLoop loop_;
  ClockServer server_;
  uint16_t port_;
  std::thread thread_;
};

std::string texts(const Findings& findings) {
  std::string all;
  for (const Finding& finding : findings) all += finding_text(finding);
  return all;
}

TEST(DoctorClock, AnswersAreReadBackExactly) {
  const std::string line = clock_answer_line({1'796'025'600'123'456'789, "a b", ""});
  EXPECT_EQ(line, "LSD1 1796025600123456789 a_b ?\n");
  const auto answer = parse_clock_answer("LSD1 1796025600123456789 a_b ?");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->unix_ns, 1'796'025'600'123'456'789);
  EXPECT_EQ(answer->host, "a_b");
  for (const char* bad : {"", "LSD1 ", "LSD1 1", "LSD1 1 h", "LSD1 x h v", "LSD1 -1 h v", "LSD1 1 h v w", "LSD1 1  v",
                          "LSD2 1 h v", "LSD1 99999999999999999999 h v", "LSD1 1 h ", "LSD1 1 h\tx v"}) {
    EXPECT_FALSE(parse_clock_answer(bad)) << bad;
  }
}

TEST(DoctorClock, TheShortestRoundTripCounts) {
  const ClockDifference difference = clock_difference({{0, 1000, 99'999}, {2000, 2100, 7050}, {3000, 3500, 0}});
  EXPECT_EQ(difference.ahead_ns, 5000);
  EXPECT_EQ(difference.round_trip_ns, 100);
  EXPECT_EQ(difference.uncertainty_ns, 50);
}

TEST(DoctorNetwork, AnEndpointWithADoctorIsAskedForItsClock) {
  const Answering far;
  const Findings findings = check_endpoint({"far", far.port()}, {}, kLong, finds({address("127.0.0.1")}));
  const std::string text = texts(findings);
  EXPECT_NE(text.find("connection to far:" + std::to_string(far.port())), std::string::npos) << text;
  EXPECT_NE(text.find("far_host answers with lockstep 9.9"), std::string::npos) << text;
  EXPECT_NE(text.find("OK    clock: far_host's is"), std::string::npos) << text;
  EXPECT_NE(text.find("OK    UDP"), std::string::npos) << text;
  EXPECT_EQ(doctor_exit_code(findings), 0);
  EXPECT_EQ(far.num_visitors(), 1);
}

TEST(DoctorNetwork, ManyDoctorsMayAskAtOnce) {
  const Answering far;
  std::atomic<int> num_answered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Findings findings = check_endpoint({"127.0.0.1", far.port()}, {}, kLong);
      num_answered += texts(findings).find("far_host answers") != std::string::npos;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_answered, 8);
}

TEST(DoctorNetwork, StrangersAtTheClockAreClosed) {
  const Answering far;
  net::EventLoop loop;
  std::optional<net::Connected> connected;
  const net::Connector connector(loop, {Address::loopback_v4(far.port())}, kLong,
                                 [&](net::Connected result) { connected = std::move(result); });
  while (!connected) loop.run_once(kLong);
  std::string end;
  net::BufferedSocket socket(loop, std::move(connected->fd), {},
                             {.on_bytes = [] {}, .on_end = [&](const std::string& reason) { end = reason; }});
  socket.send("GET / HTTP/1.1\r\n\r\n");
  const Deadline deadline = Deadline::in(kLong);
  while (end.empty() && !deadline.passed()) loop.run_once(deadline.remaining());
  EXPECT_FALSE(end.empty());
  EXPECT_EQ(socket.in(), "");
  EXPECT_EQ(far.num_visitors(), 0);
}

TEST(DoctorNetwork, SomethingElseAtTheEndpointIsNoFailure) {
  const auto other = net::ListenSocket::open(Address::loopback_v4(0), 0);
  const Findings findings = check_endpoint({"127.0.0.1", other.port()}, {}, kShort);
  EXPECT_EQ(doctor_exit_code(findings), 0) << texts(findings);
  EXPECT_NE(texts(findings).find("not compared"), std::string::npos) << texts(findings);
}

TEST(DoctorNetwork, AFreePortOfThisNodeIsListenedOnForTheCheck) {
  uint16_t port = 0;
  {
    port = net::ListenSocket::open(std::nullopt, 0).port();
  }
  const Findings findings = check_endpoint({"127.0.0.1", port}, {address("127.0.0.1")}, kLong);
  EXPECT_NE(texts(findings).find("this check listened there"), std::string::npos) << texts(findings);
  EXPECT_NE(texts(findings).find("warn  endpoint"), std::string::npos) << "a loopback endpoint: " << texts(findings);
}

TEST(DoctorNetwork, ARefusalIsTold) {
  const Finding finding = connect_failure_finding(
      {"h", 5}, {.failure = net::ConnectFailure::Refused, .problem = "10.0.0.1:5: connection refused"});
  EXPECT_EQ(finding.verdict, Verdict::Fail);
  EXPECT_NE(finding.text.find("10.0.0.1:5: connection refused. The host answers"), std::string::npos);
  EXPECT_NE(finding.text.find("nothing listens there"), std::string::npos);
  EXPECT_NE(finding.remedy.find("lockstep doctor --listen --rdzv_endpoint h:5"), std::string::npos);
}

/// A port whose queue of connections is full: further attempts are not answered, as behind a firewall that drops.
class DeafPort {
 public:
  DeafPort() : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Address::Raw any = Address::loopback_v4(0).raw();
    EXPECT_EQ(::bind(listening_.get(), any.get(), any.size), 0);
    EXPECT_EQ(::listen(listening_.get(), 0), 0);
    address_ = Address::local_of(listening_.get());
    const Address::Raw raw = address_.raw();
    for (int i = 0; i < 4; ++i) {
      waiting_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(waiting_.back().get(), raw.get(), raw.size);
    }
  }
  uint16_t port() const { return address_.port(); }

 private:
  UniqueFd listening_;
  Address address_;
  std::vector<UniqueFd> waiting_;
};

TEST(DoctorNetwork, VanishingPacketsAreToldFromARefusal) {
  const DeafPort deaf;
  const Findings findings = check_endpoint({"127.0.0.1", deaf.port()}, {}, kShort);
  EXPECT_EQ(doctor_exit_code(findings), 4);
  EXPECT_NE(texts(findings).find("no answer in 0.2 s"), std::string::npos) << texts(findings);
  EXPECT_NE(texts(findings).find("a firewall drops TCP port " + std::to_string(deaf.port())), std::string::npos);
}

TEST(DoctorNetwork, OtherFailuresAreTold) {
  const Finding route = connect_failure_finding(
      {"h", 5}, {.failure = net::ConnectFailure::Unreachable, .problem = "10.0.0.1:5: unreachable from here"});
  EXPECT_NE(route.text.find("unreachable from here"), std::string::npos);
  EXPECT_NE(route.remedy.find("ip route get"), std::string::npos);
  const Finding other =
      connect_failure_finding({"h", 5}, {.failure = net::ConnectFailure::Other, .problem = "odd"});
  EXPECT_EQ(other.verdict, Verdict::Fail);
}

TEST(DoctorNetwork, NamesThatCannotBeFoundFail) {
  const Findings unknown =
      check_endpoint({"nowhere", 5}, {}, kLong, answers({.outcome = Resolved::Outcome::UnknownName}));
  EXPECT_EQ(doctor_exit_code(unknown), 4);
  EXPECT_NE(texts(unknown).find("no such name as nowhere"), std::string::npos);
  const Findings silent = check_endpoint({"nowhere", 5}, {}, kLong, answers({.outcome = Resolved::Outcome::NoAnswer}));
  EXPECT_NE(texts(silent).find("no answer about nowhere in time"), std::string::npos);
  EXPECT_NE(texts(silent).find("/etc/resolv.conf"), std::string::npos);
}

TEST(DoctorNetwork, TheOwnName) {
  const std::vector<Address> local = {address("127.0.0.1"), address("10.0.0.7")};
  EXPECT_EQ(texts(check_own_name("me", local, kLong, finds({address("10.0.0.7")}))),
            "OK    addresses: 10.0.0.7\nOK    own name: me is 10.0.0.7\n");
  const std::string loopback = texts(check_own_name("me", local, kLong, finds({address("127.0.1.1")})));
  EXPECT_NE(loopback.find("warn  own name: me is 127.0.1.1, a loopback address"), std::string::npos) << loopback;
  EXPECT_NE(loopback.find("give 10.0.0.7"), std::string::npos) << loopback;
  const std::string foreign = texts(check_own_name("me", local, kLong, finds({address("10.0.0.8")})));
  EXPECT_NE(foreign.find("warn  own name: me is 10.0.0.8, which is not all"), std::string::npos) << foreign;
  const Findings unknown = check_own_name("me", local, kLong, answers({.outcome = Resolved::Outcome::UnknownName}));
  EXPECT_NE(texts(unknown).find("warn  own name: there is no such name as me"), std::string::npos);
  EXPECT_EQ(doctor_exit_code(unknown), 0);
  EXPECT_NE(texts(check_own_name("me", {address("::1")}, kLong, finds({address("::1")}))).find("warn  addresses: only "
                                                                                               "loopback"),
            std::string::npos);
}

TEST(DoctorNetwork, ThisNodeCanConnectToItself) {
  const Findings findings = check_local_ports({address("127.0.0.1"), address("127.5.5.5")}, kLong);
  ASSERT_EQ(findings.size(), 1U) << texts(findings);
  EXPECT_EQ(findings[0].verdict, Verdict::Ok);
  EXPECT_NE(findings[0].text.find("answers at 127.0.0.1"), std::string::npos);
}

TEST(DoctorNetwork, ClocksAreCompared) {
  EXPECT_EQ(clock_finding("n1", 3.2, 0.1).verdict, Verdict::Ok);
  EXPECT_EQ(clock_finding("n1", -3.2, 0.1).text, "n1's is 3.2 ms behind (within 0.1 ms)");
  EXPECT_EQ(clock_finding("n1", 1'500, 10).verdict, Verdict::Warn);
  EXPECT_EQ(clock_finding("n1", -1'500, 10).verdict, Verdict::Warn);
  EXPECT_EQ(clock_finding("n1", 1'500, 800).verdict, Verdict::Ok) << "too uncertain to blame";
  EXPECT_NE(clock_finding("n1", 1e6, 1).remedy.find("chrony"), std::string::npos);
}

TEST(DoctorCommand, ChecksThisNodeAndAnotherAndListensForAWhile) {
  const Answering far;
  testing::internal::CaptureStdout();
  run_doctor_command({"--rdzv_endpoint", "127.0.0.1:" + std::to_string(far.port()), "--timeout", "10"});
  std::fflush(stdout);
  const std::string text = testing::internal::GetCapturedStdout();
  for (const char* expected : {"versions: lockstep ", "CPUs: ", "memory: ", "open files: ", "current folder: ",
                               "own name: ", "own port: ", "connection to 127.0.0.1:", "far_host answers", " FAIL\n"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
  }
  testing::internal::CaptureStdout();
  run_doctor_command({"--listen", "--rdzv_endpoint", "127.0.0.1:0", "--listen_for", "0.05"});
  std::fflush(stdout);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("On the other nodes: lockstep doctor --rdzv_endpoint "
                                                        "127.0.0.1:"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
