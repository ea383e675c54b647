#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/messages.h"

#include <string_view>

namespace lockstep::fuzz {
namespace {

using namespace rendezvous;

void check_frame(const net::Frame& frame, std::string_view bytes) {
  LS_CHECK(frame.size_bytes <= bytes.size() && frame.payload.size() + 5 == frame.size_bytes, "{} of {} bytes",
           frame.size_bytes, bytes.size());
  const Decoded decoded = decode(frame);
  LS_CHECK(decoded.message.has_value() == decoded.problem.empty(), "neither a message nor a problem, or both");
  if (!decoded.message) return;
  LS_CHECK(encode(*decoded.message) == bytes.substr(0, frame.size_bytes), "a {} is encoded differently",
           message_name(frame.type));
}

void check_stream(std::string_view bytes) {
  for (;;) {
    const net::ParsedFrame parsed = net::parse_frame(bytes, kMaxPayloadBytesOfStrangers);
    if (parsed.state != net::ParsedFrame::State::Complete) return;
    check_frame(parsed.frame, bytes);
    bytes.remove_prefix(parsed.frame.size_bytes);
  }
}

}  // namespace

std::vector<std::string> agent_frames_seeds() {
  const Cause cause{.kind = ErrorKind::Data, .exit_code = 139, .node = "n2", .group_rank = 1, .world_rank = 9, .text = "x"};
  const std::vector<Message> messages = {
      Hello{.run_id = "job", .nonce = std::string(32, 'n'), .has_token = true},
      Challenge{.nonce = "c", .has_token = true, .proof = "p"},
      Proof{.proof = "p"},
      Welcome{.node = 7, .beat_key = std::string(kBeatKeyBytes, 'k'), .has_udp = true},
      Refused{.reason = RefusalReason::Full, .text = "no"},
      Join{.host_name = "n2", .addresses = {"10.0.0.2", "fd00::2"}, .role = "trainer", .backend = Backend::Static},
      Status{.reason = "waiting", .present = {"n1", "n2"}, .missing_ranks = {0, 5}},
      Round{.members = {{1, 0, "n1", "10.0.0.1", 8, "default"}, {4, 1, "n2", "::1", 4, "x"}}, .notes = {"unequal"}},
      Outcome{.round = 1, .cause = cause},
      Stop{.round = 1, .will_restart = true, .cause = cause},
      Stopped{.round = 1},
      End{.cause = cause},
      Leave{.cause = cause},
      Beat{.sequence = 77},
  };
  std::vector<std::string> seeds;
  std::string all;
  for (const Message& message : messages) {
    seeds.push_back(encode(message));
    all += seeds.back();
  }
  seeds.push_back(all);
  seeds.push_back(encode_datagram({Sign::AgentBeat, std::string(kBeatKeyBytes, 'k'), 77}));
  return seeds;
}

}  // namespace lockstep::fuzz

int fuzz_agent_frames(const uint8_t* data, size_t size) {
  using namespace lockstep::rendezvous;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  lockstep::fuzz::check_stream(input);
  if (const auto datagram = decode_datagram(input)) {
    LS_CHECK(encode_datagram(*datagram) == input, "a datagram is encoded differently");
  }
  return 0;
}
