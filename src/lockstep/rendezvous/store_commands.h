#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The wire protocol of libtorch's TCPStore as its clients of 2.11 to 2.15 speak it: little-endian, no frames. A
/// command is one byte and its operands; a key or value is u64 length and bytes. Bytes in, commands out, no system call.
namespace lockstep::rendezvous {

enum class StoreOp : uint8_t {
  Validate = 0,
  Set,
  CompareSet,
  Get,
  Add,
  Check,
  Wait,
  NumKeys,
  Delete,
  Append,
  MultiGet,
  MultiSet,
  CancelWait,
  Ping,
  QueuePush,
  QueuePop,
  QueueLength,
  ListKeys,
  Barrier,
};
inline constexpr size_t kNumStoreOps = 19;
/// "COMPARE_SET"
std::string_view name(StoreOp op);

/// What follows StoreOp::Validate.
inline constexpr uint32_t kStoreMagic = 0x3C85F7CE;
/// What the server says at the end of a WAIT or BARRIER, and to CANCEL_WAIT.
inline constexpr uint8_t kStopWaiting = 0;
inline constexpr uint8_t kWaitCancelled = 1;
inline constexpr uint8_t kReady = 0;
inline constexpr uint8_t kNotReady = 1;

/// Key, value and number of keys are libtorch's limits, the last is our own.
struct CommandLimits {
  size_t key_bytes = 8 << 10;
  size_t value_bytes = 8 << 20;
  size_t keys = 131'072;
  size_t command_bytes = 64 << 20;  ///< what may be held of one command, with kBlobOverhead for each key and value
};

/// Counted for each key and value besides its bytes.
inline constexpr size_t kBlobOverhead = 64;

struct StoreCommand {
  StoreOp op = StoreOp::Validate;
  std::vector<std::string> keys = {};
  /// SET, APPEND, QUEUE_PUSH: one; COMPARE_SET: expected, desired; MULTI_SET: one per key.
  std::vector<std::string> values = {};
  /// ADD: what to add; BARRIER: how many must arrive; VALIDATE: the magic; PING: the nonce.
  int64_t number = 0;
};

/// Cuts a stream of bytes into commands. Keeps what it has of the unfinished one, so that a caller need not keep bytes.
class CommandParser {
 public:
  enum class Result {
    Command,     ///< command() is complete
    NeedsBytes,  ///< all bytes were taken; the command goes on
    Malformed,   ///< error() says why; nothing more can be read from this stream
  };

  explicit CommandParser(const CommandLimits& limits) : limits_(limits) {}

  /// Takes from the front of `bytes` up to the end of one command.
  Result feed(std::string_view& bytes);
  /// Valid until the next feed(); may be moved from. Its strings are used again for the next command.
  StoreCommand& command() { return command_; }
  /// Gives back the memory of a large command; call when command() has been done.
  void trim();
  /// "SET: the value has 9000000 bytes; at most 8388608 are allowed".
  const std::string& error() const { return error_; }
  /// Of an unfinished command: its keys and values so far, counted as CommandLimits::command_bytes does.
  size_t held_bytes() const { return held_bytes_; }

 private:
  /// Operands in order: 'u' u32, 'i' i64, 'k' key, 'v' value, 'n' the number of times that what follows it is repeated.
  using Operands = std::string_view;

  bool begin(char first_byte);
  Result advance(std::string_view& bytes);
  bool finish_fixed(uint64_t number);
  bool begin_blob(uint64_t length);
  bool take_number(std::string_view& bytes, size_t width, uint64_t& number);
  bool take_blob(std::string_view& bytes);
  void next_operand();
  bool fail(std::string why);
  std::string& next_of(std::vector<std::string>& list, size_t& used);

  CommandLimits limits_;
  StoreCommand command_;
  std::string error_;
  bool in_command_ = false;
  Operands operands_;
  size_t operand_ = 0;       ///< index into operands_
  uint64_t repeats_ = 0;     ///< of the part after 'n' that are still to come, the present one included
  uint64_t partial_ = 0;     ///< low bytes of a number
  size_t partial_size_ = 0;  ///< how many of them
  size_t keys_used_ = 0;         ///< the strings behind these are left from earlier commands
  size_t values_used_ = 0;
  std::string* blob_ = nullptr;  ///< the key or value being filled; null while its length is read
  size_t blob_left_ = 0;
  size_t held_bytes_ = 0;
};

/// Pieces of a reply, appended to `out`.
void put_u8(std::string& out, uint8_t value);
void put_u32(std::string& out, uint32_t value);
void put_i64(std::string& out, int64_t value);
void put_blob(std::string& out, std::string_view bytes);

/// The bytes a client sends for `command`.
std::string encode(const StoreCommand& command);

}  // namespace lockstep::rendezvous
