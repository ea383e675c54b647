#pragma once

#include "lockstep/rendezvous/store_commands.h"
#include "lockstep/rendezvous/store_data.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::rendezvous {

/// What the sessions of one store share.
struct StoreContext {
  CommandLimits limits = {};
  StoreData data;
  /// The wait of another session's client is over: it is to be sent kStopWaiting. Must not feed a session.
  std::function<void(StoreData::ClientId)> wake;
  std::array<uint64_t, kNumStoreOps> num_commands{};
};

/// One client of the store: its bytes in, replies out. No system call. Not thread-safe.
///
/// The first command must be VALIDATE with the magic number. A client whose wait is pending may go on sending commands;
/// they are answered at once (clients send only CANCEL_WAIT then).
class StoreSession {
 public:
  StoreSession(StoreContext& context, StoreData::ClientId client)
      : context_(&context), client_(client), parser_(context.limits) {}
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;
  ~StoreSession() { context_->data.cancel(client_); }

  /// Does all commands that `bytes` complete and appends the replies to `out`, at most `room` bytes. A refusal (of a
  /// malformed command, of what does not fit) says why the connection must be closed; `out` then may end in part of a
  /// reply, and a MULTI_SET may have been done in part.
  [[nodiscard]] Refusal feed(std::string_view bytes, std::string& out, size_t room);

  bool validated() const { return validated_; }
  /// Of an unfinished command.
  size_t held_bytes() const { return parser_.held_bytes(); }

 private:
  /// Where replies go, and how far.
  struct Reply {
    std::string& out;
    size_t end;
    Refusal need(size_t more) const;
    Refusal value(std::string_view bytes) const;
  };

  Refusal execute(StoreCommand& command, const Reply& reply);
  Refusal add(const StoreCommand& command, const Reply& reply);
  Refusal compare_set(StoreCommand& command, const Reply& reply);
  Refusal multi_get(const StoreCommand& command, const Reply& reply) const;
  Refusal multi_set(StoreCommand& command);
  Refusal list_keys(const Reply& reply) const;
  Refusal pop(const StoreCommand& command, const Reply& reply);
  Refusal wait(StoreCommand& command, const Reply& reply);
  void tell_woken(const Reply& reply);

  StoreContext* context_;
  StoreData::ClientId client_;
  CommandParser parser_;
  bool has_begun_ = false;
  bool validated_ = false;
};

}  // namespace lockstep::rendezvous
