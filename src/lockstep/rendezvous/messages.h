#pragma once

#include "lockstep/base/error.h"
#include "lockstep/net/frame.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// What agents and the coordinator say to each other. An agent's first four bytes are kPreamble, then both sides send
/// frames (net/frame.h) whose type is the position in Message, beginning with 1. visit() names the fields in the order
/// of the wire. docs/design/launcher.md has the conversation.
namespace lockstep::rendezvous {

inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr std::string_view kPreamble = "LSR1";
inline constexpr size_t kMaxPayloadBytes = 1 << 20;  ///< of all messages but a Round, see max_round_bytes()
inline constexpr size_t kMaxPayloadBytesOfStrangers = 4096;  ///< before a connection has been authenticated
inline constexpr size_t kMaxNodes = 50'000;  ///< of a job: bounds what a Round may take
/// The longest Round of a job of so many nodes: what a Join may say of itself is bounded, and so is a member's entry.
constexpr size_t max_round_bytes(size_t max_nodes) {
  constexpr size_t kMaxMemberBytes = 1'400;
  return kMaxPayloadBytes + kMaxMemberBytes * (max_nodes < kMaxNodes ? max_nodes : kMaxNodes);
}
inline constexpr size_t kBeatKeyBytes = 16;
inline constexpr size_t kMaxTextBytes = 32 * 1024;           ///< texts for people are cut there, see shortened()

enum class Backend : uint8_t { C10d, Static };
std::string_view name(Backend backend);

/// Why a round or a job ended.
struct Cause {
  ErrorKind kind = ErrorKind::Peer;
  int32_t exit_code = 0;     ///< what every agent of the job ends with
  std::string node = {};     ///< name of the node it happened on, see distinct_name()
  int32_t group_rank = -1;   ///< of that node
  int32_t world_rank = -1;   ///< of the worker; -1: it was the node, not a worker
  bool consequence = false;  ///< the worker's own report says Peer or Timeout: as a rule another one's death, seen from here
  std::string text = {};     ///< for people

  template <class V>
  void visit(V& v) {
    v.choice(kind, ErrorKind::Resumable);
    v(exit_code), v(node), v(group_rank), v(world_rank), v(consequence), v(text);
  }
  bool operator==(const Cause&) const = default;
};

/// Agent. The first frame.
struct Hello {
  uint32_t version = kProtocolVersion;
  std::string run_id = {};
  std::string nonce = {};  ///< net::kNonceBytes random bytes
  bool has_token = false;

  template <class V>
  void visit(V& v) {
    v(version), v(run_id), v(nonce), v(has_token);
  }
  bool operator==(const Hello&) const = default;
};

/// Coordinator. Without a token the proof is empty.
struct Challenge {
  std::string nonce = {};
  bool has_token = false;
  std::string proof = {};

  template <class V>
  void visit(V& v) {
    v(nonce), v(has_token), v(proof);
  }
  bool operator==(const Challenge&) const = default;
};

/// Agent.
struct Proof {
  std::string proof = {};

  template <class V>
  void visit(V& v) {
    v(proof);
  }
  bool operator==(const Proof&) const = default;
};

/// Coordinator: you are authenticated, now Join.
struct Welcome {
  uint64_t node = 0;          ///< the agent's number in this job
  std::string beat_key = {};  ///< kBeatKeyBytes random bytes, for beats by UDP
  bool has_udp = false;       ///< the coordinator listens for them, on the same port

  template <class V>
  void visit(V& v) {
    v(node), v(beat_key), v(has_udp);
  }
  bool operator==(const Welcome&) const = default;
};

enum class RefusalReason : uint8_t {
  Other,
  Protocol,        ///< another version of the protocol
  TokenMissing,    ///< one side has a token, the other none
  TokenDiffers,
  RunId,
  Settings,        ///< nnodes, backend or max_restarts differ
  Rank,            ///< the node rank does not fit or is taken (static)
  Full,            ///< the job has all its nodes, or runs without this one
  Malformed,
  Ending,          ///< the job there is about to end: try again
};

/// Either side: the connection ends. Of an agent only the reason is looked at, never its text.
struct Refused {
  RefusalReason reason = RefusalReason::Other;
  ErrorKind kind = ErrorKind::Usage;
  std::string text = {};

  template <class V>
  void visit(V& v) {
    v.choice(reason, RefusalReason::Ending);
    v.choice(kind, ErrorKind::Resumable);
    v(text);
  }
  bool operator==(const Refused&) const = default;
};

/// Agent, once. The second half must be the same on all nodes.
struct Join {
  std::string host_name = {};
  std::vector<std::string> addresses = {};  ///< of the node's interfaces, without loopback
  std::string local_addr = {};              ///< --local_addr; empty: as seen
  uint16_t store_port = 0;                  ///< of the workers' store, should this node become group rank 0
  uint32_t nproc = 1;
  std::string role = "default";
  int32_t wanted_rank = -1;                 ///< -1: any
  std::string rank_origin = {};             ///< "SLURM_NODEID", "--node_rank"
  std::string program = {};                 ///< for people
  uint32_t pid = 0;

  Backend backend = Backend::C10d;
  uint32_t min_nodes = 1;
  uint32_t max_nodes = 1;
  uint32_t max_restarts = 0;

  template <class V>
  void visit(V& v) {
    v(host_name), v(addresses), v(local_addr), v(store_port), v(nproc), v(role), v(wanted_rank), v(rank_origin);
    v(program), v(pid);
    v.choice(backend, Backend::Static);
    v(min_nodes), v(max_nodes), v(max_restarts);
  }
  bool operator==(const Join&) const = default;
};

/// Coordinator: something is awaited.
struct Status {
  std::string reason = {};                 ///< whole sentence for people: awaited what, who is here, who is missing
  uint32_t num_present = 0;
  std::vector<std::string> present = {};   ///< names, at most kMaxNames of them
  std::vector<int32_t> missing_ranks = {}; ///< where ranks are known beforehand, at most kMaxNames
  int32_t seconds_left = -1;               ///< -1: no limit
  static constexpr size_t kMaxNames = 16;

  template <class V>
  void visit(V& v) {
    v(reason), v(num_present), v(present);
    v.count_of(missing_ranks, 4);
    for (int32_t& rank : missing_ranks) v(rank);
    v(seconds_left);
  }
  bool operator==(const Status&) const = default;
};

/// A node of a round. Its group rank is its position in the list.
struct Member {
  uint64_t node = 0;   ///< as in its Welcome
  uint32_t index = 0;  ///< stays the same over restarts
  std::string host_name = {};
  std::string address = {};  ///< numeric, as the others reach it
  uint32_t nproc = 1;
  std::string role = {};
  std::vector<std::string> addresses = {};  ///< numeric: all that its workers may come from

  template <class V>
  void visit(V& v) {
    v(node), v(index), v(host_name), v(address), v(nproc), v(role), v(addresses);
  }
  bool operator==(const Member&) const = default;
};

/// Coordinator: start your workers.
struct Round {
  uint32_t number = 0;    ///< 1, 2, ...
  uint32_t restarts = 0;  ///< of the job so far
  std::vector<Member> members = {};
  std::string master_address = {};  ///< numeric: where the workers' store of group rank 0's agent is
  uint16_t master_port = 0;
  std::vector<std::string> notes = {};  ///< for people: warnings about ranks, unequal nproc

  template <class V>
  void visit(V& v) {
    v(number), v(restarts);
    v.list(members, 8 + 4 + 4 + 4 + 4 + 4 + 4);
    v(master_address), v(master_port), v(notes);
  }
  bool operator==(const Round&) const = default;
};

/// Agent: how the round ended on this node by itself.
struct Outcome {
  uint32_t round = 0;
  std::optional<Cause> cause = {};  ///< absent: all workers succeeded

  template <class V>
  void visit(V& v) {
    v(round);
    v.optional(cause);
  }
  bool operator==(const Outcome&) const = default;
};

/// Coordinator: stop your workers and answer Stopped.
struct Stop {
  uint32_t round = 0;
  bool will_restart = false;
  Cause cause = {};

  template <class V>
  void visit(V& v) {
    v(round), v(will_restart);
    cause.visit(v);
  }
  bool operator==(const Stop&) const = default;
};

/// Agent: no worker of the round is left here. With what failed here by itself, if anything did.
struct Stopped {
  uint32_t round = 0;
  std::optional<Cause> cause = {};

  template <class V>
  void visit(V& v) {
    v(round);
    v.optional(cause);
  }
  bool operator==(const Stopped&) const = default;
};

/// Coordinator: the job is over.
struct End {
  std::optional<Cause> cause = {};  ///< absent: success

  template <class V>
  void visit(V& v) {
    v.optional(cause);
  }
  bool operator==(const End&) const = default;
};

/// Agent: this node leaves in good order (a signal, as a rule); its workers are gone.
struct Leave {
  Cause cause = {};

  template <class V>
  void visit(V& v) {
    cause.visit(v);
  }
  bool operator==(const Leave&) const = default;
};

/// Either side, every 200 ms.
struct Beat {
  uint64_t sequence = 0;
  uint32_t num_taken = 0;  ///< of the other side's news, see News

  template <class V>
  void visit(V& v) {
    v(sequence), v(num_taken);
  }
  bool operator==(const Beat&) const = default;
};

using Message = std::variant<Hello, Challenge, Proof, Welcome, Refused, Join, Status, Round, Outcome, Stop, Stopped, End,
                             Leave, Beat>;

/// The whole frame. Texts must be short enough: the payload is checked against `max_payload_bytes` (a bug otherwise).
std::string encode(const Message& message, size_t max_payload_bytes = kMaxPayloadBytes);

struct Decoded {
  std::optional<Message> message = {};
  std::string problem = {};  ///< for people, when there is no message
};
/// Any bytes are allowed.
Decoded decode(const net::Frame& frame);
/// "Join"; "message 77" for a number that stands for none.
std::string message_name(uint8_t type);

/// A text of at most `max_bytes`, cut in the middle where it is longer: the end of a report tells most.
std::string shortened(std::string text, size_t max_bytes = kMaxTextBytes);
/// Printable ASCII alone, other bytes as '?', at most `max_bytes`: what strangers sent, for the log.
std::string printable(std::string_view bytes, size_t max_bytes = 60);

/// What a datagram says. Farewell: I have heard nothing of you for so long that I gave you up. Where packets vanish one
/// way only, the other side learns of it at once instead of after a silence of its own.
enum class Sign : uint8_t { AgentBeat = 'a', CoordinatorBeat = 'c', AgentFarewell = 'A', CoordinatorFarewell = 'C' };
struct Datagram {
  Sign sign = Sign::AgentBeat;
  std::string_view beat_key = {};  ///< decoded: points into the bytes
  uint64_t sequence = 0;           ///< grows with every datagram of a side
  uint32_t num_taken = 0;          ///< of the other side's news, see News
  uint32_t first_news = 0;         ///< number of the first frame in `news`
  std::string news = {};           ///< frames, one after the other
};
inline constexpr int kFarewells = 3;  ///< copies that are sent
std::string encode_datagram(const Datagram& datagram);
std::optional<Datagram> decode_datagram(std::string_view bytes);

}  // namespace lockstep::rendezvous
