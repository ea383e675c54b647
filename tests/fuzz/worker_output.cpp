#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/line_multiplexer.h"
#include "lockstep/launch/messages.h"

#include <array>

namespace {

using namespace lockstep;
using namespace lockstep::launch;

void check_message(std::string_view packet) {
  const auto message = decode(packet.substr(0, kMaxMessageBytes));
  if (message) LS_CHECK(decode(encode(*message)) == message, "a message is read differently");
}

/// Nothing may be added between bytes of `written` but what others wrote: all of it is there, in its order.
bool holds_in_order(std::string_view all, std::string_view written) {
  size_t found = 0;
  for (const char c : all) {
    if (found < written.size() && c == written[found]) ++found;
  }
  return found == written.size();
}

class Session {
 public:
  explicit Session(unsigned setup)
      : num_workers_(1 + setup % 3),
        has_prefixes_((setup & 4U) != 0),
        lines_(static_cast<int>(num_workers_),
               {.out_is_terminal = (setup & 8U) != 0, .err_is_terminal = (setup & 16U) != 0, .same = (setup & 32U) != 0},
               [this](Stream stream, std::string_view bytes) { shown_[static_cast<size_t>(stream)] += bytes; },
               has_prefixes_ ? std::vector<std::string>(num_workers_, "[p]:") : std::vector<std::string>{}) {}

  void take(unsigned what, std::string_view bytes) {
    const size_t rank = what % num_workers_;
    const size_t stream = (what & 8U) != 0 ? 1 : 0;
    if ((what & 0x70U) == 0x70U) {
      printed_ = true;
      lines_.print(static_cast<Stream>(stream), "front\n");
      return;
    }
    written_[2 * rank + stream] += bytes;
    lines_.feed(static_cast<int>(rank), static_cast<Stream>(stream), bytes);
  }

  void finish() {
    for (size_t i = 0; i < 2 * num_workers_; ++i) lines_.finish(static_cast<int>(i / 2), static_cast<Stream>(i % 2));
    for (size_t i = 0; i < 2 * num_workers_; ++i) {
      LS_CHECK(holds_in_order(shown_[i % 2], written_[i]), "output of worker {} is missing", i / 2);
    }
    if (num_workers_ > 1 || has_prefixes_ || printed_) return;
    LS_CHECK(shown_[0] == written_[0] && shown_[1] == written_[1], "the only worker's output was changed");
  }

 private:
  size_t num_workers_;
  bool has_prefixes_;
  bool printed_ = false;
  std::array<std::string, 2> shown_;
  std::array<std::string, 6> written_;  ///< by rank, then stream
  LineMultiplexer lines_;
};

}  // namespace

int fuzz_worker_output(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  check_message(input);
  if (input.empty()) return 0;
  Session session(static_cast<uint8_t>(input[0]));
  input.remove_prefix(1);
  while (input.size() >= 2) {
    const size_t length = std::min<size_t>(static_cast<uint8_t>(input[1]) % 64, input.size() - 2);
    session.take(static_cast<uint8_t>(input[0]), input.substr(2, length));
    input.remove_prefix(2 + length);
  }
  session.finish();
  return 0;
}
