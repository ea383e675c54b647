#include "lockstep/rendezvous/store_session.h"

#include <fmt/format.h>

#include <utility>

namespace lockstep::rendezvous {
namespace {

constexpr size_t kNumberBytes = 8;

Refusal check_handshake(const StoreCommand& command) {
  if (command.op != StoreOp::Validate) return "comes before VALIDATE";
  if (command.number == kStoreMagic) return std::nullopt;
  return fmt::format("0x{:08x} is not the number by which clients of a TCPStore are known", command.number);
}

}  // namespace

Refusal StoreSession::Reply::need(size_t more) const {
  if (out.size() <= end && more <= end - out.size()) return std::nullopt;
  return fmt::format("a reply of {} bytes is more than may wait to be read ({} bytes wait in this turn)", more,
                     out.size());
}

Refusal StoreSession::Reply::value(std::string_view bytes) const {
  if (auto refusal = need(kNumberBytes + bytes.size())) return refusal;
  put_blob(out, bytes);
  return std::nullopt;
}

Refusal StoreSession::feed(std::string_view bytes, std::string& out, size_t room) {
  if (bytes.empty()) return std::nullopt;
  if (!std::exchange(has_begun_, true) && bytes.front() != static_cast<char>(StoreOp::Validate)) {
    return fmt::format("its first byte is 0x{:02x}, not that of a TCPStore's client",
                       static_cast<uint8_t>(bytes.front()));
  }
  const Reply reply{out, out.size() + room};
  while (!bytes.empty()) {
    const CommandParser::Result result = parser_.feed(bytes);
    if (result == CommandParser::Result::NeedsBytes) break;
    if (result == CommandParser::Result::Malformed) return parser_.error();
    StoreCommand& command = parser_.command();
    ++context_->num_commands[static_cast<size_t>(command.op)];
    const Refusal refusal = validated_ ? execute(command, reply) : check_handshake(command);
    tell_woken(reply);  // what is refused half-way may have woken somebody
    parser_.trim();
    if (refusal) return fmt::format("{}: {}", name(command.op), *refusal);
    validated_ = true;
  }
  return std::nullopt;
}

Refusal StoreSession::execute(StoreCommand& command, const Reply& reply) {
  StoreData& data = context_->data;
  if (auto refusal = reply.need(kNumberBytes)) return refusal;
  switch (command.op) {
    case StoreOp::Validate: return "sent twice";
    case StoreOp::Ping: put_u32(reply.out, static_cast<uint32_t>(command.number)); break;
    case StoreOp::Set: return data.set(command.keys[0], std::move(command.values[0]));
    case StoreOp::Append: return data.append(command.keys[0], command.values[0]);
    case StoreOp::MultiSet: return multi_set(command);
    case StoreOp::CompareSet: return compare_set(command, reply);
    case StoreOp::Add: return add(command, reply);
    case StoreOp::Delete: put_i64(reply.out, data.erase(command.keys[0]) ? 1 : 0); break;
    case StoreOp::Get: return reply.value(data.get(command.keys[0]));
    case StoreOp::MultiGet: return multi_get(command, reply);
    case StoreOp::NumKeys: put_i64(reply.out, static_cast<int64_t>(data.num_keys())); break;
    case StoreOp::ListKeys: return list_keys(reply);
    case StoreOp::Check: put_u8(reply.out, data.all_exist(command.keys) ? kReady : kNotReady); break;
    case StoreOp::Wait:
    case StoreOp::Barrier: return wait(command, reply);
    case StoreOp::CancelWait:
      data.cancel(client_);
      put_u8(reply.out, kWaitCancelled);
      break;
    case StoreOp::QueuePush: return data.queue_push(command.keys[0], std::move(command.values[0]));
    case StoreOp::QueuePop: return pop(command, reply);
    case StoreOp::QueueLength:
      put_i64(reply.out, static_cast<int64_t>(data.queue_length(command.keys[0])));
      break;
  }
  return std::nullopt;
}

Refusal StoreSession::add(const StoreCommand& command, const Reply& reply) {
  int64_t sum = 0;
  if (auto refusal = context_->data.add(command.keys[0], command.number, sum)) return refusal;
  put_i64(reply.out, sum);
  return std::nullopt;
}

Refusal StoreSession::compare_set(StoreCommand& command, const Reply& reply) {
  std::string_view now;
  const std::string& expected = command.values[0];
  if (auto refusal = context_->data.compare_set(command.keys[0], expected, std::move(command.values[1]), now)) {
    return refusal;
  }
  return reply.value(now);
}

Refusal StoreSession::multi_get(const StoreCommand& command, const Reply& reply) const {
  for (const std::string& key : command.keys) {
    if (auto refusal = reply.value(context_->data.get(key))) return refusal;
  }
  return std::nullopt;
}

Refusal StoreSession::multi_set(StoreCommand& command) {
  for (size_t i = 0; i < command.keys.size(); ++i) {
    if (auto refusal = context_->data.set(command.keys[i], std::move(command.values[i]))) return refusal;
  }
  return std::nullopt;
}

Refusal StoreSession::list_keys(const Reply& reply) const {
  const std::vector<std::string_view> keys = context_->data.list_keys();
  put_i64(reply.out, static_cast<int64_t>(keys.size()));
  for (const std::string_view key : keys) {
    if (auto refusal = reply.value(key)) return refusal;
  }
  return std::nullopt;
}

// The length is what libtorch's server sends: before the removal.
Refusal StoreSession::pop(const StoreCommand& command, const Reply& reply) {
  const size_t length = context_->data.queue_length(command.keys[0]);
  put_i64(reply.out, static_cast<int64_t>(length));
  if (length == 0) return std::nullopt;
  return reply.value(*context_->data.queue_pop(command.keys[0]));
}

Refusal StoreSession::wait(StoreCommand& command, const Reply& reply) {
  StoreData& data = context_->data;
  auto state = StoreData::Wait::Over;
  auto refusal = command.op == StoreOp::Wait ? data.wait(client_, std::move(command.keys), state)
                                             : data.barrier(client_, command.keys[0], command.number, state);
  if (!refusal && state == StoreData::Wait::Over) put_u8(reply.out, kStopWaiting);
  return refusal;
}

void StoreSession::tell_woken(const Reply& reply) {
  for (const StoreData::ClientId woken : context_->data.take_woken()) {
    if (woken == client_) {
      put_u8(reply.out, kStopWaiting);
    } else {
      context_->wake(woken);
    }
  }
}

}  // namespace lockstep::rendezvous
