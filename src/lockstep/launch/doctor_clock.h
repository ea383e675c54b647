#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/net/address.h"
#include "lockstep/net/buffered_socket.h"
#include "lockstep/net/datagram.h"
#include "lockstep/net/event_loop.h"
#include "lockstep/net/listen.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The tiny protocol of `lockstep doctor --listen`: a line "LSD1 time" is answered by "LSD1 NANOSECONDS HOST VERSION",
/// any number of times on a connection, and once by UDP. Nothing else is answered, nothing is kept, at most 64 visitors
/// at a time. It begins with 'L' as an agent's greeting does, so that a coordinator that is asked closes the connection
/// quietly.
namespace lockstep::launch {

struct ClockAnswer {
  int64_t unix_ns = 0;
  std::string host;
  std::string version;
};
inline constexpr std::string_view kClockQuestion = "LSD1 time\n";
std::string clock_answer_line(const ClockAnswer& answer);
/// Absent for anything that is no answer (without the line break).
std::optional<ClockAnswer> parse_clock_answer(std::string_view line);

/// One question: sent and answered by this node's clock.
struct ClockSample {
  int64_t sent_ns = 0;
  int64_t received_ns = 0;
  int64_t answered_ns = 0;  ///< by the other node's clock
};
struct ClockDifference {
  int64_t ahead_ns = 0;     ///< how far the other clock is ahead of this one
  int64_t uncertainty_ns = 0;
  int64_t round_trip_ns = 0;
};
/// From the sample with the shortest round trip. Needs one at least.
ClockDifference clock_difference(const std::vector<ClockSample>& samples);

int64_t unix_nanoseconds();

/// Answers on a loop until it is destroyed.
class ClockServer {
 public:
  /// `visitor` gets the address of each connection that asked. UDP is answered on the same port where that is free.
  ClockServer(net::EventLoop& loop, net::ListenSocket socket, std::string host, std::string version,
              std::function<void(const net::Address&)> visitor);
  ClockServer(const ClockServer&) = delete;
  ClockServer& operator=(const ClockServer&) = delete;
  ~ClockServer();
  uint16_t port() const { return listener_.port(); }

 private:
  struct Visit;
  void accept(UniqueFd fd, const net::Address& peer);
  void answer(Visit& visit);
  void end_after(Visit& visit, Milliseconds span);
  std::string answer_line() const;

  net::EventLoop* loop_;
  std::string host_;
  std::string version_;
  std::function<void(const net::Address&)> visitor_;
  std::vector<std::unique_ptr<Visit>> visits_;
  std::optional<net::DatagramSocket> datagrams_;
  net::Listener listener_;
};

/// What a connection to an endpoint gave.
struct ClockVisit {
  std::optional<ClockAnswer> answer = {};  ///< absent: whoever listens is no doctor
  std::optional<ClockDifference> difference = {};
  bool is_udp_answered = false;
};
/// Asks over `fd` (connected, non-blocking) some times, and once by UDP; returns at the latest at `deadline`.
ClockVisit ask_clock(UniqueFd fd, const net::Address& peer, Deadline deadline);

}  // namespace lockstep::launch
