#include "lockstep/rendezvous/store_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace lockstep::rendezvous {
namespace {

size_t entry_bytes(std::string_view key, std::string_view value) { return kEntryOverhead + key.size() + value.size(); }

/// As std::stoll reads it, which is what libtorch's server does: leading blanks, a sign, and whatever after the digits.
std::optional<int64_t> parse_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc()) return std::nullopt;
  return number;
}

int64_t wrapping_sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

std::string no_number(std::string_view key, std::string_view value) {
  return fmt::format("key '{}' holds {} bytes that are no number ('{}')", key, value.size(), value.substr(0, 40));
}

constexpr std::string_view kOneAtATime = "the client waits already; one wait at a time";
constexpr size_t kLongestNumber = 20;

}  // namespace

std::string* StoreData::find(std::string_view key) {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Refusal StoreData::room_for(size_t more) const {
  if (more <= limits_.total_bytes && bytes_ <= limits_.total_bytes - more) return std::nullopt;
  return fmt::format("the store is full: {} bytes in {} keys, {} queues and {} waits; {} more would exceed {}", bytes_,
                     values_.size(), queues_.size(), waiters_.size(), more, limits_.total_bytes);
}

Refusal StoreData::set(const std::string& key, std::string&& value) {
  if (std::string* old = find(key)) {
    const size_t more = value.size() > old->size() ? value.size() - old->size() : 0;
    if (auto refusal = room_for(more)) return refusal;
    bytes_ = bytes_ - old->size() + value.size();
    old->swap(value);
  } else {
    const size_t more = entry_bytes(key, value);
    if (auto refusal = room_for(more)) return refusal;
    bytes_ += more;
    values_.emplace(key, std::move(value));
  }
  key_appeared(key, Wake::All);
  return std::nullopt;
}

std::string_view StoreData::get(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string_view() : std::string_view(found->second);
}

Refusal StoreData::add(const std::string& key, int64_t delta, int64_t& sum) {
  sum = delta;
  if (const std::string* value = find(key)) {
    const auto number = parse_number(*value);
    if (!number) return no_number(key, *value);
    sum = wrapping_sum(*number, delta);
  }
  return set(key, std::to_string(sum));
}

Refusal StoreData::compare_set(const std::string& key, const std::string& expected, std::string desired,
                               std::string_view& now) {
  const std::string* value = find(key);
  now = value != nullptr ? std::string_view(*value) : std::string_view(expected);
  if (value != nullptr ? *value != expected : !expected.empty()) return std::nullopt;
  if (auto refusal = set(key, std::move(desired))) return refusal;
  now = get(key);
  return std::nullopt;
}

Refusal StoreData::append(const std::string& key, std::string_view tail) {
  std::string* value = find(key);
  if (value == nullptr) return set(key, std::string(tail));
  if (value->size() + tail.size() > limits_.appended_bytes) {
    return fmt::format("key '{}' would hold {} bytes; at most {} can be appended to one value", key,
                       value->size() + tail.size(), limits_.appended_bytes);
  }
  if (auto refusal = room_for(tail.size())) return refusal;
  value->append(tail);
  bytes_ += tail.size();
  return std::nullopt;
}

bool StoreData::erase(std::string_view key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= entry_bytes(found->first, found->second);
  values_.erase(found);
  ++removals_;
  return true;
}

std::vector<std::string_view> StoreData::list_keys() const {
  std::vector<std::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.emplace_back(key);
  return keys;
}

Refusal StoreData::queue_push(const std::string& key, std::string value) {
  const size_t more = entry_bytes(key, value);
  if (auto refusal = room_for(more)) return refusal;
  bytes_ += more;
  queues_[key].push_back(std::move(value));
  key_appeared(key, Wake::One);
  return std::nullopt;
}

std::optional<std::string> StoreData::queue_pop(std::string_view key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return std::nullopt;
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  bytes_ -= entry_bytes(key, value);
  if (found->second.empty()) {
    queues_.erase(found);
    ++removals_;
  }
  return value;
}

size_t StoreData::queue_length(std::string_view key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

bool StoreData::exists(std::string_view key) const { return values_.contains(key) || queues_.contains(key); }

bool StoreData::all_exist(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return exists(key); });
}

Refusal StoreData::wait(ClientId client, std::vector<std::string> keys, Wait& wait) {
  if (is_waiting(client)) return std::string(kOneAtATime);
  Waiter waiter{.keys = std::move(keys), .removals = removals_};
  wait = Wait::Over;
  if (advance(waiter)) return std::nullopt;
  wait = Wait::Pending;
  for (const std::string& key : waiter.keys) waiter.bytes += entry_bytes(key, {});
  if (auto refusal = room_for(waiter.bytes)) return refusal;
  add_waiter(client, std::move(waiter));
  return std::nullopt;
}

Refusal StoreData::barrier(ClientId client, const std::string& key, int64_t world_size, Wait& wait) {
  if (is_waiting(client)) return std::string(kOneAtATime);
  const size_t waiter_bytes = entry_bytes(key, {});
  if (auto refusal = room_for(waiter_bytes + entry_bytes(key, {}) + kLongestNumber)) return refusal;
  int64_t arrivals = 0;
  if (auto refusal = add(key, 1, arrivals)) return refusal;
  if (arrivals >= world_size) {
    wait = Wait::Over;
    wake_arrived(key, arrivals);
    return std::nullopt;
  }
  wait = Wait::Pending;
  add_waiter(client, {.keys = {key}, .arrivals = world_size, .bytes = waiter_bytes});
  return std::nullopt;
}

void StoreData::cancel(ClientId client) {
  const auto found = waiters_.find(client);
  if (found == waiters_.end()) return;
  const Waiter waiter = std::move(found->second);
  waiters_.erase(found);
  bytes_ -= waiter.bytes;
  const std::string& key = waiter.keys[waiter.next];
  const auto listed = listeners_.find(key);
  std::erase(listed->second, client);
  if (listed->second.empty()) listeners_.erase(listed);
  if (waiter.arrivals > 0) take_back_arrival(key);
}

void StoreData::take_back_arrival(const std::string& key) {
  std::string* value = find(key);
  const auto arrivals = value != nullptr ? parse_number(*value) : std::nullopt;
  if (!arrivals || *arrivals <= 0) return;
  bytes_ -= value->size();
  *value = std::to_string(*arrivals - 1);
  bytes_ += value->size();
}

std::vector<StoreData::ClientId> StoreData::take_woken() { return std::exchange(woken_, {}); }

void StoreData::clear() {
  values_.clear();
  queues_.clear();
  waiters_.clear();
  listeners_.clear();
  woken_.clear();
  ++removals_;
  bytes_ = 0;
}

bool StoreData::advance(Waiter& waiter) const {
  if (waiter.removals != removals_) {
    waiter.removals = removals_;
    waiter.seen = 0;
  }
  for (; waiter.seen < waiter.keys.size(); ++waiter.seen) {
    if (!exists(waiter.keys[waiter.next])) return false;
    waiter.next = (waiter.next + 1) % waiter.keys.size();
  }
  return true;
}

void StoreData::key_appeared(const std::string& key, Wake wake_whom) {
  if (listeners_.empty()) return;
  const auto found = listeners_.find(key);
  if (found == listeners_.end()) return;
  const std::vector<ClientId> listed = std::move(found->second);
  listeners_.erase(found);
  std::vector<ClientId> stay;
  bool enough = false;
  for (const ClientId client : listed) {
    Waiter& waiter = waiters_.at(client);
    if (enough || waiter.arrivals > 0) {
      stay.push_back(client);
    } else if (advance(waiter)) {
      wake(client);
      enough = wake_whom == Wake::One;
    } else {
      listeners_[waiter.keys[waiter.next]].push_back(client);
    }
  }
  if (!stay.empty()) listeners_.emplace(key, std::move(stay));
}

void StoreData::wake_arrived(const std::string& key, int64_t arrivals) {
  const auto found = listeners_.find(key);
  if (found == listeners_.end()) return;
  std::vector<ClientId> stay;
  for (const ClientId client : found->second) {
    const int64_t needed = waiters_.at(client).arrivals;
    if (needed > 0 && needed <= arrivals) {
      wake(client);
    } else {
      stay.push_back(client);
    }
  }
  if (stay.empty()) {
    listeners_.erase(found);
  } else {
    found->second = std::move(stay);
  }
}

void StoreData::add_waiter(ClientId client, Waiter waiter) {
  bytes_ += waiter.bytes;
  listeners_[waiter.keys[waiter.next]].push_back(client);
  waiters_.emplace(client, std::move(waiter));
}

void StoreData::wake(ClientId client) {
  const auto found = waiters_.find(client);
  bytes_ -= found->second.bytes;
  waiters_.erase(found);
  woken_.push_back(client);
}

}  // namespace lockstep::rendezvous
