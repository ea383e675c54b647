#include "lockstep/net/connect.h"

#include "lockstep/base/error.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::net {
namespace {

ConnectFailure classify(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
      return ConnectFailure::Refused;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return ConnectFailure::Unreachable;
    case ETIMEDOUT:
      return ConnectFailure::NoAnswer;
    default:
      return ConnectFailure::Other;
  }
}

std::string_view words(ConnectFailure failure, int error) {
  switch (failure) {
    case ConnectFailure::Refused: return "connection refused";
    case ConnectFailure::Unreachable: return "unreachable from here";
    case ConnectFailure::NoAnswer: return "no answer (host down, or a firewall drops the packets)";
    default: return std::strerror(error);
  }
}

/// How much a failure tells: a refusal came from the host itself.
int weight(ConnectFailure failure) {
  switch (failure) {
    case ConnectFailure::None: return 0;
    case ConnectFailure::Unreachable: return 1;
    case ConnectFailure::NoAnswer: return 2;
    case ConnectFailure::Other: return 3;
    case ConnectFailure::Refused: return 4;
  }
  return 0;
}

}  // namespace

std::vector<Address> in_turns(const std::vector<Address>& addresses) {
  std::vector<Address> first;
  std::vector<Address> second;
  for (const Address& address : addresses) {
    (address.is_v6() == addresses.front().is_v6() ? first : second).push_back(address);
  }
  std::vector<Address> mixed;
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i < first.size()) mixed.push_back(first[i]);
    if (i < second.size()) mixed.push_back(second[i]);
  }
  return mixed;
}

void tune_for_control(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Without this the kernel gives up a connection sooner than usual where retransmissions do not back off.
  const unsigned int longest_silence_ms = 900'000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &longest_silence_ms, sizeof longest_silence_ms);
  // Linear time-outs hold for a thin stream after its first loss, which is told by a threshold that BBR never sets: with
  // it they have no effect. Reno is built into every kernel and open to all users.
  constexpr std::string_view kReno = "reno";
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size());
  ::setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
  constexpr int kTcpRtoMaxMs = 44;  // TCP_RTO_MAX_MS, newer than the headers
  const int longest_timeout_ms = 1'000;
  ::setsockopt(fd, IPPROTO_TCP, kTcpRtoMaxMs, &longest_timeout_ms, sizeof longest_timeout_ms);
}

Connector::Connector(EventLoop& loop, std::vector<Address> targets, Milliseconds longest, Done done,
                     Milliseconds head_start)
    : loop_(&loop), targets_(in_turns(targets)), longest_(longest), head_start_(head_start), done_(std::move(done)) {
  LS_CHECK(!targets_.empty(), "no address to connect to");
  deadline_timer_ = loop_->after(longest, [this] { give_up(); });
  next_timer_ = loop_->after(Milliseconds(0), [this] { start_next(); });
}

void Connector::start_next() {
  loop_->cancel(next_timer_);
  next_timer_ = 0;
  if (next_ == targets_.size()) return;
  const Address target = targets_[next_++];
  UniqueFd fd(::socket(target.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return failed(target, classify(errno), std::strerror(errno));
  const Address::Raw raw = target.raw();
  if (::connect(fd.get(), raw.get(), raw.size) != 0 && errno != EINPROGRESS) {
    const ConnectFailure failure = classify(errno);
    return failed(target, failure, words(failure, errno));
  }
  attempts_.push_back({std::move(fd), target});
  const auto attempt = std::prev(attempts_.end());
  loop_->watch(attempt->fd.get(), EPOLLOUT, [this, attempt](uint32_t) { on_writable(attempt); });
  if (next_ < targets_.size()) next_timer_ = loop_->after(head_start_, [this] { start_next(); });
}

void Connector::on_writable(std::list<Attempt>::iterator attempt) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(attempt->fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  loop_->unwatch(attempt->fd.get());
  Attempt done = std::move(*attempt);
  attempts_.erase(attempt);
  const Address local = Address::local_of(done.fd.get());
  // A port of the ephemeral range that nobody listens on may meet itself, when the kernel gives the connecting side the
  // very port it connects to.
  if (error == 0 && local == Address::peer_of(done.fd.get())) error = ECONNREFUSED;
  if (error != 0) {
    const ConnectFailure failure = classify(error);
    return failed(done.target, failure, words(failure, error));
  }
  tune_for_control(done.fd.get());
  finish({.fd = std::move(done.fd), .local = local, .peer = done.target});
}

void Connector::failed(const Address& target, ConnectFailure failure, std::string_view text) {
  if (weight(failure) > weight(failure_)) failure_ = failure;
  problem_ += fmt::format("{}{}: {}", problem_.empty() ? "" : ", ", target.text(), text);
  if (next_ < targets_.size()) {
    loop_->cancel(next_timer_);
    next_timer_ = loop_->after(Milliseconds(0), [this] { start_next(); });
  } else if (attempts_.empty()) {
    finish({.failure = failure_, .problem = problem_});
  }
}

void Connector::give_up() {
  for (const Attempt& attempt : attempts_) {
    if (weight(ConnectFailure::NoAnswer) > weight(failure_)) failure_ = ConnectFailure::NoAnswer;
    problem_ += fmt::format("{}{}: no answer in {:.1f} s (host down, or a firewall drops the packets)",
                            problem_.empty() ? "" : ", ", attempt.target.text(),
                            static_cast<double>(longest_.count()) / 1000);
  }
  if (failure_ == ConnectFailure::None) {
    failure_ = ConnectFailure::NoAnswer;
    problem_ = fmt::format("{}: not tried in time", targets_.front().text());
  }
  finish({.failure = failure_, .problem = problem_});
}

void Connector::stop() {
  loop_->cancel(next_timer_);
  loop_->cancel(deadline_timer_);
  for (const Attempt& attempt : attempts_) loop_->unwatch(attempt.fd.get());
  attempts_.clear();
}

void Connector::finish(Connected connected) {
  stop();
  const Done done = std::move(done_);
  done(std::move(connected));
}

}  // namespace lockstep::net
