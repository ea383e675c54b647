#include "lockstep/launch/doctor_clock.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace lockstep::launch {
namespace {

constexpr std::string_view kClockMagic = "LSD1 ";
constexpr size_t kMostVisits = 64;
constexpr Milliseconds kLongestVisit{10'000};
constexpr net::BufferedSocket::Limits kLimits{.max_in = 512, .max_out = 4096};

/// For a word of an answer line.
std::string one_word(std::string text) {
  text = text.substr(0, 200);
  std::replace_if(text.begin(), text.end(), [](char c) { return c <= 32 || c == 127; }, '_');
  return text.empty() ? "?" : text;
}

}  // namespace

std::string clock_answer_line(const ClockAnswer& answer) {
  return fmt::format("{}{} {} {}\n", kClockMagic, answer.unix_ns, one_word(answer.host), one_word(answer.version));
}

std::optional<ClockAnswer> parse_clock_answer(std::string_view line) {
  if (!line.starts_with(kClockMagic) || line.size() > 500) return std::nullopt;
  line.remove_prefix(kClockMagic.size());
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos || line.find(' ', second + 1) != std::string_view::npos) return std::nullopt;
  ClockAnswer answer;
  const auto [end, problem] = std::from_chars(line.data(), line.data() + first, answer.unix_ns);
  if (problem != std::errc() || end != line.data() + first || answer.unix_ns < 0) return std::nullopt;
  const auto is_word = [](std::string_view word) {
    return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c > 32 && c != 127; });
  };
  answer.host = line.substr(first + 1, second - first - 1);
  answer.version = line.substr(second + 1);
  if (!is_word(answer.host) || !is_word(answer.version)) return std::nullopt;
  return answer;
}

ClockDifference clock_difference(const std::vector<ClockSample>& samples) {
  LS_CHECK(!samples.empty(), "no samples");
  const auto round_trip = [](const ClockSample& sample) { return sample.received_ns - sample.sent_ns; };
  const ClockSample best = *std::min_element(samples.begin(), samples.end(), [&](const auto& a, const auto& b) {
    return round_trip(a) < round_trip(b);
  });
  ClockDifference difference;
  difference.round_trip_ns = round_trip(best);
  difference.uncertainty_ns = difference.round_trip_ns / 2;
  difference.ahead_ns = best.answered_ns - (best.sent_ns + difference.round_trip_ns / 2);
  return difference;
}

int64_t unix_nanoseconds() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count();
}

struct ClockServer::Visit {
  net::Address peer;
  std::unique_ptr<net::BufferedSocket> socket = {};
  net::EventLoop::TimerId end_timer = 0;
  bool has_asked = false;
};

ClockServer::ClockServer(net::EventLoop& loop, net::ListenSocket socket, std::string host, std::string version,
                         std::function<void(const net::Address&)> visitor)
    : loop_(&loop),
      host_(std::move(host)),
      version_(std::move(version)),
      visitor_(std::move(visitor)),
      datagrams_(net::DatagramSocket::open(socket.local())),
      listener_(loop, std::move(socket), [this](UniqueFd fd, const net::Address& peer) { accept(std::move(fd), peer); },
                [](const std::string&) {}) {
  if (datagrams_) {
    datagrams_->start(loop, [this](std::string_view bytes, const net::Address& from) {
      if (bytes == kClockQuestion) datagrams_->send_to(answer_line(), from);
    });
  }
}

ClockServer::~ClockServer() {
  for (const auto& visit : visits_) loop_->cancel(visit->end_timer);
}

std::string ClockServer::answer_line() const { return clock_answer_line({unix_nanoseconds(), host_, version_}); }

void ClockServer::accept(UniqueFd fd, const net::Address& peer) {
  if (visits_.size() >= kMostVisits) return;
  auto visit = std::make_unique<Visit>(Visit{.peer = peer});
  Visit* const raw = visit.get();
  end_after(*raw, kLongestVisit);
  raw->socket = std::make_unique<net::BufferedSocket>(
      *loop_, std::move(fd), kLimits,
      net::BufferedSocket::Callbacks{.on_bytes = [this, raw] { answer(*raw); },
                                     .on_end = [this, raw](const std::string&) { end_after(*raw, Milliseconds(0)); }});
  visits_.push_back(std::move(visit));
}

void ClockServer::answer(Visit& visit) {
  net::BufferedSocket& socket = *visit.socket;
  while (socket.in().starts_with(kClockQuestion)) {
    socket.consume(kClockQuestion.size());
    socket.send(answer_line());
    if (!visit.has_asked) visitor_(visit.peer);
    visit.has_asked = true;
  }
  if (!kClockQuestion.starts_with(socket.in())) {
    socket.close();
    end_after(visit, Milliseconds(0));
  }
}

/// A visit cannot be destroyed from its own callbacks, so it always ends by a timer.
void ClockServer::end_after(Visit& visit, Milliseconds span) {
  loop_->cancel(visit.end_timer);
  visit.end_timer = loop_->after(span, [this, ended = &visit] {
    std::erase_if(visits_, [&](const std::unique_ptr<Visit>& other) { return other.get() == ended; });
  });
}

namespace {

/// The client's side: a question at a time.
class ClockClient {
 public:
  ClockClient(UniqueFd fd, const net::Address& peer)
      : socket_(loop_, std::move(fd), kLimits,
                {.on_bytes = [this] { on_bytes(); }, .on_end = [this](const std::string&) { is_over_ = true; }}),
        peer_(peer),
        datagrams_(net::DatagramSocket::open(peer.is_v6() ? net::Address::any_v6(0) : net::Address::any_v4(0))) {}

  ClockVisit run(Deadline deadline) {
    ask();
    while (!is_over_ && !deadline.passed()) loop_.run_once(deadline.remaining());
    if (!samples_.empty()) visit_.difference = clock_difference(samples_);
    if (visit_.answer && datagrams_) ask_by_udp(deadline);
    return visit_;
  }

 private:
  static constexpr size_t kSamples = 5;

  void ask() {
    sent_ns_ = unix_nanoseconds();
    socket_.send(kClockQuestion);
  }

  void on_bytes() {
    const size_t end = socket_.in().find('\n');
    if (end == std::string_view::npos) return;
    const int64_t received_ns = unix_nanoseconds();
    auto answer = parse_clock_answer(socket_.in().substr(0, end));
    socket_.consume(end + 1);
    if (!answer) {
      is_over_ = true;
      return;
    }
    samples_.push_back({sent_ns_, received_ns, answer->unix_ns});
    visit_.answer = std::move(answer);
    if (samples_.size() < kSamples) ask();
    else is_over_ = true;
  }

  /// Three tries a fifth of a second apart: UDP may lose some.
  void ask_by_udp(Deadline deadline) {
    datagrams_->start(loop_, [this](std::string_view bytes, const net::Address&) {
      if (bytes.ends_with('\n') && parse_clock_answer(bytes.substr(0, bytes.size() - 1))) visit_.is_udp_answered = true;
    });
    for (int attempt = 0; attempt < 3 && !visit_.is_udp_answered && !deadline.passed(); ++attempt) {
      datagrams_->send_to(kClockQuestion, peer_);
      const Deadline next = Deadline::in(std::min(Milliseconds(200), deadline.remaining()));
      while (!visit_.is_udp_answered && !next.passed()) loop_.run_once(next.remaining());
    }
    datagrams_->stop();
  }

  net::EventLoop loop_;
  net::BufferedSocket socket_;
  net::Address peer_;
  std::optional<net::DatagramSocket> datagrams_;
  std::vector<ClockSample> samples_;
  ClockVisit visit_;
  int64_t sent_ns_ = 0;
  bool is_over_ = false;
};

}  // namespace

ClockVisit ask_clock(UniqueFd fd, const net::Address& peer, Deadline deadline) {
  return ClockClient(std::move(fd), peer).run(deadline);
}

}  // namespace lockstep::launch
