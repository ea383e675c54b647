#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::rendezvous {

struct DataLimits {
  size_t total_bytes = size_t{512} << 20;   ///< keys, values, queues and what is waited for, with kEntryOverhead each
  size_t appended_bytes = size_t{64} << 20;  ///< of one value that APPEND makes longer
};

/// Counted for each key, queued value and awaited key besides its bytes.
inline constexpr size_t kEntryOverhead = 128;

/// Why an operation was not done, in words; nothing was changed then.
using Refusal = std::optional<std::string>;

/// What a TCPStore server knows: values, queues, and who waits for what. No system call, no clock. Not thread-safe.
///
/// A key exists while it has a value or a queue of that name holds something. A client waits for one thing at a time.
/// Where this differs from libtorch's server: a waiter is woken only when all its keys exist at once (there, also after
/// a COMPARE_SET that wrote nothing, or when an awaited key has been deleted again), and an arrival at a barrier that
/// is cancelled, or whose client has gone, no longer counts.
class StoreData {
 public:
  using ClientId = uint64_t;

  explicit StoreData(const DataLimits& limits) : limits_(limits) {}

  /// `value` may be given the storage of the value it replaces.
  [[nodiscard]] Refusal set(const std::string& key, std::string&& value);
  /// Empty when there is none. Valid until the next call that is not const.
  std::string_view get(std::string_view key) const;
  /// Values are decimal texts; an absent one counts as 0, overflow wraps. A value without a number is refused.
  [[nodiscard]] Refusal add(const std::string& key, int64_t delta, int64_t& sum);
  /// Writes `desired` when the value equals `expected`, or is absent and `expected` is empty. `now` is the value
  /// afterwards, or `expected` when the key stays absent; valid until the next call that is not const.
  [[nodiscard]] Refusal compare_set(const std::string& key, const std::string& expected, std::string desired,
                                    std::string_view& now);
  [[nodiscard]] Refusal append(const std::string& key, std::string_view tail);
  /// Whether there was a value. Queues stay.
  bool erase(std::string_view key);
  /// Values; queues are not counted and not listed.
  size_t num_keys() const { return values_.size(); }
  std::vector<std::string_view> list_keys() const;

  /// Wakes one client that waits for `key`: the oldest, as each is going to take what it waited for.
  [[nodiscard]] Refusal queue_push(const std::string& key, std::string value);
  std::optional<std::string> queue_pop(std::string_view key);
  size_t queue_length(std::string_view key) const;

  bool exists(std::string_view key) const;
  bool all_exist(const std::vector<std::string>& keys) const;

  enum class Wait { Over, Pending };
  /// Over at once when all exist (also when there are none); otherwise take_woken() names the client some day.
  /// Refused to a client that waits already.
  [[nodiscard]] Refusal wait(ClientId client, std::vector<std::string> keys, Wait& wait);
  /// Adds 1 to the value of `key`; over when it has reached `world_size`. A key serves once: later arrivals pass.
  [[nodiscard]] Refusal barrier(ClientId client, const std::string& key, int64_t world_size, Wait& wait);
  /// The client waits no longer (CANCEL_WAIT, or it has gone).
  void cancel(ClientId client);
  bool is_waiting(ClientId client) const { return waiters_.contains(client); }
  size_t num_waiting() const { return waiters_.size(); }

  /// Clients whose wait has ended since the last call, in that order.
  std::vector<ClientId> take_woken();

  size_t bytes() const { return bytes_; }
  /// Forgets everything, waiters included (nobody is woken).
  void clear();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <class Value>
  using ByKey = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  /// Listed in `listeners_` under one key alone: for keys the next that is missing, for a barrier its name.
  struct Waiter {
    std::vector<std::string> keys = {};
    size_t next = 0;        ///< index into keys: the missing one
    size_t seen = 0;        ///< keys before `next`, going round, that were found without a removal in between
    uint64_t removals = 0;  ///< removals_ when they were
    int64_t arrivals = 0;   ///< barrier: how many it needs; 0 for keys
    size_t bytes = 0;
  };

  std::string* find(std::string_view key);
  [[nodiscard]] Refusal room_for(size_t more) const;
  bool advance(Waiter& waiter) const;
  enum class Wake { All, One };
  void key_appeared(const std::string& key, Wake wake);
  void wake_arrived(const std::string& key, int64_t arrivals);
  void add_waiter(ClientId client, Waiter waiter);
  void wake(ClientId client);
  void take_back_arrival(const std::string& key);

  DataLimits limits_;
  ByKey<std::string> values_;
  ByKey<std::list<std::string>> queues_;  ///< none is empty
  std::unordered_map<ClientId, Waiter> waiters_;
  ByKey<std::vector<ClientId>> listeners_;  ///< the oldest first
  std::vector<ClientId> woken_;
  uint64_t removals_ = 0;
  size_t bytes_ = 0;
};

}  // namespace lockstep::rendezvous
