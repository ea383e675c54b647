// What comes to the port and does not belong to the job: each is turned away with one line and disturbs nobody.
#include "lockstep/rendezvous/coordinator.h"

#include "world.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

void say(const UniqueFd& fd, std::string_view bytes) {
  EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

/// All that the coordinator says until it closes.
std::string hear(World& world, const UniqueFd& fd) {
  std::string heard;
  const bool closed = world.until([&] {
    std::string piece(4096, '\0');
    const ssize_t got = ::recv(fd.get(), piece.data(), piece.size(), 0);
    if (got > 0) heard.append(piece, 0, static_cast<size_t>(got));
    return got == 0 || (got < 0 && errno != EAGAIN);
  });
  EXPECT_TRUE(closed) << "the connection stays open";
  return heard;
}

Refused refusal_in(std::string_view bytes) {
  const net::ParsedFrame parsed = net::parse_frame(bytes, kMaxPayloadBytes);
  EXPECT_EQ(parsed.state, net::ParsedFrame::State::Complete);
  const Decoded decoded = decode(parsed.frame);
  EXPECT_TRUE(decoded.message && std::holds_alternative<Refused>(*decoded.message)) << decoded.problem;
  return decoded.message ? std::get<Refused>(*decoded.message) : Refused{};
}

/// A job of two nodes with one of them here, for strangers to disturb.
class Strangers : public testing::Test {
 protected:
  static Coordinator::Options options() {
    Coordinator::Options options = World::options(2, 2);
    options.handshake_timeout = 150ms;
    return options;
  }
  void begin(Coordinator::Options with = options(), bool with_store = false) {
    world = std::make_unique<World>(with, with_store);
    world->add("n1");
    ASSERT_TRUE(world->until([&] { return world->coordinator->membership().num_living() == 1; })) << world->all_lines();
  }
  /// Exactly one warning so far, with `part`; then the job goes on as if nothing had been.
  void expect_one_line_and_a_healthy_job(std::string_view part) {
    EXPECT_EQ(world->count_lines(part), 1) << part << "\n" << world->all_lines();
    EXPECT_EQ(world->count_lines("127.0.0.1:"), 1) << world->all_lines();
    finish_job();
  }
  void finish_job() {
    Agent& n2 = world->add("n2");
    ASSERT_TRUE(world->until([&] { return n2.round && world->agents[0]->round; })) << world->all_lines();
    EXPECT_EQ(n2.round->members.size(), 2U);
  }
  /// An agent that is refused: returns the error it got.
  Error refused(const AgentLink::Options& link_options) {
    Agent& agent = world->add(link_options);
    EXPECT_TRUE(world->until([&] { return agent.lost.has_value(); })) << world->all_lines();
    EXPECT_FALSE(agent.round);
    const Error error = agent.lost.value_or(Error(ErrorKind::Internal, "not refused"));
    world->until([&] { return agent.link->is_over(); });
    return error;
  }
  std::unique_ptr<World> world;
};

bool contains(const Error& error, std::string_view part) { return std::string(error.what()).find(part) != std::string::npos; }

TEST_F(Strangers, AnHttpClient) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(hear(*world, fd), "");
  expect_one_line_and_a_healthy_job("is no launcher of lockstep; it said: GET / HTTP/1.1");
}

TEST_F(Strangers, APortScannerThatLeaves) {
  begin();
  world->connect_raw();
  ASSERT_TRUE(world->until([&] { return world->count_lines("port scan") == 1; }));
  expect_one_line_and_a_healthy_job("connected, said nothing and left (a port scan?)");
}

TEST_F(Strangers, APortScannerThatStays) {
  begin();
  const UniqueFd fd = world->connect_raw();
  EXPECT_EQ(hear(*world, fd), "");
  expect_one_line_and_a_healthy_job("did not say what it is within 0.1 s");
}

TEST_F(Strangers, ASlowDribbleHasNoMoreTimeThanOthers) {
  begin();
  const UniqueFd fd = world->connect_raw();
  const std::string bytes = std::string(kPreamble) + encode(Hello{.run_id = "job-1", .nonce = std::string(32, 'x')});
  size_t sent = 0;
  std::function<void()> dribble = [&] {
    if (sent == bytes.size() || ::send(fd.get(), &bytes[sent], 1, MSG_NOSIGNAL) != 1) return;
    ++sent;
    world->loop.after(10ms, dribble);
  };
  dribble();
  const Refused refused = refusal_in(hear(*world, fd));
  EXPECT_EQ(refused.text, "it had not joined within 0.1 s");
  EXPECT_LT(sent, bytes.size());
  expect_one_line_and_a_healthy_job("was refused: it had not joined within");
}

TEST_F(Strangers, ATorchWorkerOnTheC10dPort) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, "\x00\xce\xf7\x85\x3c"s);
  EXPECT_EQ(hear(*world, fd), "");
  expect_one_line_and_a_healthy_job("is a TCPStore client (a worker of torch)");
}

TEST_F(Strangers, ATorchWorkerOnTheStaticPortIsHandedOver) {
  begin(options(), true);
  const UniqueFd fd = world->connect_raw();
  say(fd, "\x00\xce\xf7\x85\x3c"s);
  ASSERT_TRUE(world->until([&] { return !world->store_clients.empty(); }));
  EXPECT_EQ(world->store_clients[0], "\x00\xce\xf7\x85\x3c"s);
  EXPECT_EQ(world->count_lines("127.0.0.1:"), 0) << world->all_lines();
  finish_job();
}

TEST_F(Strangers, AnUnknownProtocol) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, "LSR9");
  EXPECT_EQ(refusal_in(hear(*world, fd)).reason, RefusalReason::Protocol);
  expect_one_line_and_a_healthy_job("it speaks 'LSR9', this is lockstep's protocol 'LSR1'");
}

TEST_F(Strangers, ANewerVersionWhoseHelloIsNotUnderstood) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, std::string(kPreamble) + "\x05\0\0\0\x01\x07\0\0\0?"s);
  EXPECT_EQ(refusal_in(hear(*world, fd)).kind, ErrorKind::Environment);
  expect_one_line_and_a_healthy_job("it speaks version 7 of lockstep's protocol, this is version 2");
}

TEST_F(Strangers, AnOversizedFrameBeforeTheProof) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, std::string(kPreamble) + "\x01\x10\0\0\x01"s);
  EXPECT_EQ(refusal_in(hear(*world, fd)).reason, RefusalReason::Malformed);
  expect_one_line_and_a_healthy_job("it announced a message of 4097 bytes where at most 4096 are taken");
}

TEST_F(Strangers, GarbageAfterTheRightBeginning) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, std::string(kPreamble) + "\x04\0\0\0\x01\x02\0\0\0"s);
  EXPECT_EQ(refusal_in(hear(*world, fd)).reason, RefusalReason::Malformed);
  expect_one_line_and_a_healthy_job("it sent a malformed Hello: ");
}

TEST_F(Strangers, AHelloWithoutAVersion) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, std::string(kPreamble) + "\x03\0\0\0\x01\x01\0\0"s);
  EXPECT_EQ(refusal_in(hear(*world, fd)).reason, RefusalReason::Malformed);
  expect_one_line_and_a_healthy_job("it sent a malformed Hello: a field of 4 bytes where 3 are left");
}

TEST_F(Strangers, AJoinWithoutAProof) {
  begin();
  const UniqueFd fd = world->connect_raw();
  say(fd, std::string(kPreamble) + encode(Hello{.run_id = "job-1", .nonce = std::string(32, 'x')}) + encode(Join{.host_name = "x"}));
  EXPECT_TRUE(hear(*world, fd).size() > 0);
  expect_one_line_and_a_healthy_job("it sent Join out of turn");
}

TEST_F(Strangers, WithATokenAStrangerLearnsAndChangesNothing) {
  Coordinator::Options with = options();
  with.token = net::Token::make();
  begin(with);
  const UniqueFd fd = world->connect_raw();
  say(fd, std::string(kPreamble) + encode(Hello{.run_id = "another job", .nonce = std::string(32, 'x'), .has_token = true}));
  say(fd, encode(Proof{.proof = std::string(32, 'x')}));
  const std::string heard = hear(*world, fd);
  EXPECT_EQ(heard.find("job-1"), std::string::npos) << "the job's name was told";
  EXPECT_EQ(heard.find("n1"), std::string::npos) << "a node's name was told";
  expect_one_line_and_a_healthy_job("its token is not this job's");
}

TEST_F(Strangers, AWrongToken) {
  Coordinator::Options with = options();
  with.token = net::Token::make();
  begin(with);
  AgentLink::Options link = world->agent_options("n2");
  link.token = net::Token::make();
  const Error error = refused(link);
  EXPECT_EQ(error.kind(), ErrorKind::Usage);
  EXPECT_TRUE(contains(error, "is not this launcher's. Give every node the same --rdzv_conf token_file=PATH.")) << error.what();
  expect_one_line_and_a_healthy_job("has another token than this job and left");
}

TEST_F(Strangers, ATokenOnOneSideOnly) {
  begin();
  AgentLink::Options link = world->agent_options("n2");
  link.token = net::Token::make();
  EXPECT_TRUE(contains(refused(link), "that launcher has a token and the job here has none"));
  expect_one_line_and_a_healthy_job("that launcher has a token and the job here has none");

  Coordinator::Options with = options();
  with.token = net::Token::make();
  begin(with);
  link = world->agent_options("n2");
  link.token.reset();
  EXPECT_TRUE(contains(refused(link), "this job has a token and that launcher has none"));
  expect_one_line_and_a_healthy_job("this job has a token and that launcher has none");
}

TEST_F(Strangers, AnotherJobIsRefusedWithBothNames) {
  for (const bool has_token : {false, true}) {
    Coordinator::Options with = options();
    if (has_token) with.token = net::Token::make();
    begin(with);
    AgentLink::Options link = world->agent_options("n2");
    link.run_id = "job-2";
    const Error error = refused(link);
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_TRUE(contains(error, "it belongs to the job 'job-2' and here meets the job 'job-1' (--rdzv_id)")) << error.what();
    expect_one_line_and_a_healthy_job("it belongs to the job 'job-2'");
  }
}

TEST_F(Strangers, DifferentSettingsAreRefusedWithBothValues) {
  const std::vector<std::pair<std::string, std::function<void(Join&)>>> cases = {
      {"--nnodes is 2:3 on that node and 2:2 where the nodes meet", [](Join& join) { join.max_nodes = 3; }},
      {"--nnodes is 1:2 on that node and 2:2 where the nodes meet", [](Join& join) { join.min_nodes = 1; }},
      {"--max_restarts is 4 on that node and 0 where the nodes meet", [](Join& join) { join.max_restarts = 4; }},
      {"--rdzv_backend is static on that node and c10d where the nodes meet", [](Join& join) { join.backend = Backend::Static; }},
  };
  for (const auto& [text, change] : cases) {
    begin();
    AgentLink::Options link = world->agent_options("n2");
    change(link.join);
    const Error error = refused(link);
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_TRUE(contains(error, text)) << error.what();
    EXPECT_EQ(world->count_lines(text), 1) << world->all_lines();
    finish_job();
  }
}

TEST_F(Strangers, ANameThatWouldSpoilTheLog) {
  for (const std::string& name : {std::string("n2\n12:00 all is well"), std::string("\x1b[2J"), std::string(256, 'x'), std::string()}) {
    begin();
    AgentLink::Options link = world->agent_options("n2");
    link.join.host_name = name;
    EXPECT_TRUE(contains(refused(link), "a name that is empty, too long or not plain text"));
    finish_job();
  }
}

TEST_F(Strangers, ASurplusNode) {
  begin();
  finish_job();
  const Error error = refused(world->agent_options("n3"));
  EXPECT_EQ(error.kind(), ErrorKind::Usage);
  EXPECT_TRUE(contains(error, "the job already has all its 2 nodes: n1 (127.0.0.1), n2 (127.0.0.1)")) << error.what();
  EXPECT_EQ(world->count_lines("refused n3 (127.0.0.1)"), 1) << world->all_lines();
  EXPECT_TRUE(world->agents[0]->stops.empty());
}

TEST_F(Strangers, ALateNode) {
  Coordinator::Options with = options();
  with.membership.min_nodes = 1;
  begin(with);
  ASSERT_TRUE(world->until([&] { return world->agents[0]->round.has_value(); }));
  EXPECT_TRUE(contains(refused(world->agent_options("n2")), "a node cannot come to a running job"));
  EXPECT_TRUE(world->agents[0]->stops.empty());
}

TEST_F(Strangers, AStaticRankThatIsTakenOrTooLarge) {
  Coordinator::Options with = options();
  with.membership.backend = Backend::Static;
  world = std::make_unique<World>(with);
  AgentLink::Options link = world->agent_options("n1");
  link.join.wanted_rank = 1;
  link.join.rank_origin = "--node_rank";
  world->add(link);
  ASSERT_TRUE(world->until([&] { return world->coordinator->membership().num_living() == 1; }));
  link.join.host_name = "n2";
  EXPECT_TRUE(contains(refused(link), "n1 (127.0.0.1) and n2 (127.0.0.1) both have --node_rank 1"));
  ASSERT_TRUE(world->until([&] { return !world->agents[0]->statuses.empty(); }));
  world->agents[0]->statuses.clear();
  link.join.wanted_rank = 2;
  EXPECT_TRUE(contains(refused(link), "--node_rank 2 of n2 (127.0.0.1) is not below the number of nodes, 2"));
  link.join.wanted_rank = 0;
  Agent& n2 = world->add(link);
  ASSERT_TRUE(world->until([&] { return n2.round.has_value(); })) << world->all_lines();
  EXPECT_EQ(n2.rank, 0);
}

TEST_F(Strangers, AMemberThatSendsNonsenseIsLostAtOnce) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x01\0\0\0\x09x"s, "it sent a malformed Outcome: a field of 4 bytes where 1 are left"},
      {"\x01\0\x10\0\x09"s, "it announced a message of 1048577 bytes where at most 1048576 are taken"},
      {encode(Beat{1}) + encode(End{}), "it sent a message that only a coordinator sends"},
      {encode(Hello{.run_id = "job-1", .nonce = std::string(32, 'x')}), "it sent a message that only a coordinator sends"},
  };
  for (const auto& [bytes, text] : cases) {
    begin();
    const UniqueFd fd = world->connect_raw();
    Join join = world->agent_options("bad").join;
    say(fd, std::string(kPreamble) + encode(Hello{.run_id = "job-1", .nonce = std::string(32, 'x')}) + encode(Proof{}) +
                encode(join));
    ASSERT_TRUE(world->until([&] { return world->agents[0]->round.has_value(); })) << world->all_lines();
    say(fd, bytes);
    hear(*world, fd);
    ASSERT_TRUE(world->until([&] { return world->agents[0]->end.has_value(); })) << world->all_lines();
    EXPECT_EQ(world->agents[0]->end->cause->text, "bad (127.0.0.1) is lost: " + text);
    EXPECT_EQ(world->count_lines(text), 3) << "lost, stopped, ended\n" << world->all_lines();
  }
}

TEST_F(Strangers, ManyConnectionsThatSayNothingMakeRoomForAnAgent) {
  Coordinator::Options with = options();
  with.handshake_timeout = 60s;
  begin(with);
  std::vector<UniqueFd> scanners;
  for (int i = 0; i < 300; ++i) {
    scanners.push_back(world->connect_raw());
    world->loop.run_once(0ms);
  }
  finish_job();
  EXPECT_GE(world->count_lines("was cut off: too many connections that do not join"), 1);
  EXPECT_LE(world->count_lines("127.0.0.1:"), RefusalLog::kLines) << "one host fills the log\n" << world->all_lines();
}

TEST_F(Strangers, DatagramsWithAGuessedKeyAreIgnored) {
  begin();
  auto socket = net::DatagramSocket::open(net::Address::loopback_v4(0)).value();
  const net::Address to = net::Address::loopback_v4(world->coordinator->port());
  socket.send_to(encode_datagram({Sign::AgentBeat, std::string(kBeatKeyBytes, 'x'), 1}), to);
  socket.send_to(encode_datagram({Sign::AgentFarewell, std::string(kBeatKeyBytes, 'x'), 2}), to);
  socket.send_to("garbage", to);
  socket.send_to("", to);
  finish_job();
}

TEST(RefusalLog, ALineThatRepeatsIsLeftOutForAMinute) {
  RefusalLog log;
  const net::Address host = net::Address::parse("10.0.0.9", 5).value();
  const Clock::time_point start = Clock::now();
  int printed = 0;
  for (uint16_t i = 0; i < 100; ++i) printed += log.pass(host.with_port(i), "x", start).has_value() ? 1 : 0;
  EXPECT_EQ(printed, RefusalLog::kLines);
  EXPECT_TRUE(log.pass(net::Address::parse("10.0.0.8", 5).value(), "x", start)) << "another host";
  EXPECT_TRUE(log.pass(host, "x", start + RefusalLog::kSpan));
}

}  // namespace
}  // namespace lockstep::rendezvous
