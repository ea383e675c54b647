#include "lockstep/launch/absent_host.h"

#include "lockstep/launch/host_name.h"
#include "lockstep/net/event_loop.h"
#include "lockstep/net/resolve.h"
#include "lockstep/rendezvous/coordinator.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lockstep::launch {
namespace {

/// A look-up that takes longer is taken for no answer: the link goes on trying.
constexpr Milliseconds kLongestLookUp{5'000};
/// Agents try at least every second.
constexpr Milliseconds kAbsenceIsTold{5'000};

std::string_view unfinished(std::string_view sentence) { return sentence.substr(0, sentence.find_last_not_of('.') + 1); }

}  // namespace

rendezvous::HostQuestion host_question(const RunSpec& spec, const MeetingSpec& meeting, const std::string& host_name) {
  rendezvous::HostQuestion question;
  question.endpoint = {spec.endpoint_host, spec.endpoint_port};
  question.is_host = meeting.is_host;
  const bool is_static = meeting.backend == rendezvous::Backend::Static;
  if (is_static && spec.node_rank.value_or(0) != 0 && !question.is_host) question.is_host = false;
  if (!question.is_host) question.resolved = net::resolve(question.endpoint, Deadline::in(kLongestLookUp));
  question.local_addresses = net::local_addresses();
  question.host_name = host_name;
  return question;
}

void tell_absence(const RunSpec& spec, const MeetingSpec& meeting, const Error& error,
                  const std::function<void(const std::string&)>& say) {
  const std::string host_name = own_host_name();
  const rendezvous::HostQuestion question = host_question(spec, meeting, host_name);
  if (!rendezvous::should_host(question).host) return;
  auto socket = rendezvous::try_to_host(question);
  if (!socket) return;
  net::EventLoop loop;
  rendezvous::Coordinator coordinator(
      loop, {.run_id = spec.run_id, .token = meeting.token, .membership = meeting.membership},
      {.log = [&](log::Level level, const std::string& line) {
        if (level >= log::Level::Warning) say(line);
      }});
  coordinator.listen(std::move(*socket));
  coordinator.abort({.kind = error.kind(),
                     .exit_code = error.exit_code(),
                     .node = host_name,
                     .text = fmt::format("its launcher cannot take part: {}", error.what())});
  say(fmt::format("this node cannot take part: {}; the other nodes, which wait for it at {}, are told so for at most {} s",
                  unfinished(error.what()), question.endpoint.text(), kAbsenceIsTold.count() / 1000));
  const Deadline deadline = Deadline::in(kAbsenceIsTold);
  const auto all_know = [&] {
    return coordinator.num_told_late() >= spec.max_nodes - 1 && !coordinator.has_connections();
  };
  while (!all_know() && !deadline.passed()) loop.run_once(std::min(deadline.remaining(), Milliseconds(50)));
}

}  // namespace lockstep::launch
