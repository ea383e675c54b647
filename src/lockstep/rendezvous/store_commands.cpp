#include "lockstep/rendezvous/store_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace lockstep::rendezvous {
namespace {

struct Op {
  std::string_view name;
  std::string_view operands;
};

constexpr std::array<Op, kNumStoreOps> kOps{{
    {"VALIDATE", "u"},     {"SET", "kv"},        {"COMPARE_SET", "kvv"}, {"GET", "k"},        {"ADD", "ki"},
    {"CHECK", "nk"},       {"WAIT", "nk"},       {"GETNUMKEYS", ""},     {"DELETE_KEY", "k"}, {"APPEND", "kv"},
    {"MULTI_GET", "nk"},   {"MULTI_SET", "nkv"}, {"CANCEL_WAIT", ""},    {"PING", "u"},       {"QUEUE_PUSH", "kv"},
    {"QUEUE_POP", "k"},    {"QUEUE_LEN", "k"},   {"LIST_KEYS", ""},      {"BARRIER", "ki"},
}};

void put_little_endian(std::string& out, uint64_t value, size_t width) {
  for (size_t i = 0; i < width; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t load_u64(const char* bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

std::string_view name(StoreOp op) {
  const auto index = static_cast<size_t>(op);
  return index < kNumStoreOps ? kOps[index].name : std::string_view("unknown");
}

CommandParser::Result CommandParser::feed(std::string_view& bytes) {
  if (!error_.empty()) return Result::Malformed;
  if (!in_command_) {
    if (bytes.empty()) return Result::NeedsBytes;
    const char first = bytes.front();
    bytes.remove_prefix(1);
    if (!begin(first)) return Result::Malformed;
  }
  const Result result = advance(bytes);
  if (result == Result::Command) {
    command_.keys.resize(keys_used_);
    command_.values.resize(values_used_);
    in_command_ = false;
    held_bytes_ = 0;
  }
  return result;
}

bool CommandParser::begin(char first_byte) {
  const auto op = static_cast<uint8_t>(first_byte);
  if (op >= kNumStoreOps) return fail(fmt::format("0x{:02x} is not a command of a TCPStore", op));
  command_.op = StoreOp{op};
  command_.number = 0;
  keys_used_ = 0;
  values_used_ = 0;
  operands_ = kOps[op].operands;
  operand_ = 0;
  repeats_ = 1;
  in_command_ = true;
  return true;
}

CommandParser::Result CommandParser::advance(std::string_view& bytes) {
  while (operand_ < operands_.size()) {
    if (blob_ != nullptr) {
      if (!take_blob(bytes)) return Result::NeedsBytes;
      next_operand();
      continue;
    }
    const char kind = operands_[operand_];
    uint64_t number = 0;
    if (!take_number(bytes, kind == 'u' ? 4 : 8, number)) return Result::NeedsBytes;
    const bool is_blob = kind == 'k' || kind == 'v';
    if (!(is_blob ? begin_blob(number) : finish_fixed(number))) return Result::Malformed;
  }
  return Result::Command;
}

bool CommandParser::take_number(std::string_view& bytes, size_t width, uint64_t& number) {
  if (width == 8 && partial_size_ == 0 && bytes.size() >= width) {
    number = load_u64(bytes.data());
    bytes.remove_prefix(width);
    return true;
  }
  const size_t taken = std::min(width - partial_size_, bytes.size());
  for (size_t i = 0; i < taken; ++i) {
    partial_ |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * (partial_size_ + i));
  }
  partial_size_ += taken;
  bytes.remove_prefix(taken);
  if (partial_size_ < width) return false;
  number = std::exchange(partial_, 0);
  partial_size_ = 0;
  return true;
}

bool CommandParser::finish_fixed(uint64_t number) {
  if (operands_[operand_] != 'n') {
    command_.number = static_cast<int64_t>(number);
    next_operand();
    return true;
  }
  if (number > limits_.keys) {
    return fail(fmt::format("{}: {} keys in one command; at most {} are allowed", name(command_.op), number,
                            limits_.keys));
  }
  repeats_ = number;
  operand_ = number == 0 ? operands_.size() : operand_ + 1;
  return true;
}

bool CommandParser::begin_blob(uint64_t length) {
  const bool is_key = operands_[operand_] == 'k';
  const size_t limit = is_key ? limits_.key_bytes : limits_.value_bytes;
  if (length > limit) {
    return fail(fmt::format("{}: the {} has {} bytes; at most {} are allowed", name(command_.op),
                            is_key ? "key" : "value", length, limit));
  }
  held_bytes_ += kBlobOverhead;
  if (held_bytes_ + length > limits_.command_bytes) {
    return fail(fmt::format("{}: the command has more than {} bytes", name(command_.op), limits_.command_bytes));
  }
  blob_ = is_key ? &next_of(command_.keys, keys_used_) : &next_of(command_.values, values_used_);
  // Pages of a large one are touched only as its bytes come.
  blob_->reserve(length);
  blob_left_ = length;
  return true;
}

std::string& CommandParser::next_of(std::vector<std::string>& list, size_t& used) {
  if (used == list.size()) list.emplace_back();
  std::string& next = list[used++];
  next.clear();
  return next;
}

void CommandParser::trim() {
  constexpr size_t kKeptStrings = 64;
  constexpr size_t kKeptBytes = 128;  // stored with a value at most: within what is counted for each
  for (std::vector<std::string>* list : {&command_.keys, &command_.values}) {
    // swap() alone gives memory back: an assignment keeps the capacity.
    if (list->size() > kKeptStrings) std::vector<std::string>().swap(*list);
    for (std::string& text : *list) {
      if (text.capacity() > kKeptBytes) std::string().swap(text);
    }
  }
}

bool CommandParser::take_blob(std::string_view& bytes) {
  const size_t taken = std::min(blob_left_, bytes.size());
  blob_->append(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  blob_left_ -= taken;
  held_bytes_ += taken;
  if (blob_left_ > 0) return false;
  blob_ = nullptr;
  return true;
}

void CommandParser::next_operand() {
  ++operand_;
  if (operand_ == operands_.size() && --repeats_ > 0) operand_ = operands_.find('n') + 1;
}

bool CommandParser::fail(std::string why) {
  error_ = std::move(why);
  command_ = {};
  blob_ = nullptr;
  held_bytes_ = 0;
  return false;
}

void put_u8(std::string& out, uint8_t value) { out.push_back(static_cast<char>(value)); }
void put_u32(std::string& out, uint32_t value) { put_little_endian(out, value, 4); }
void put_i64(std::string& out, int64_t value) { put_little_endian(out, static_cast<uint64_t>(value), 8); }

void put_blob(std::string& out, std::string_view bytes) {
  put_little_endian(out, bytes.size(), 8);
  out.append(bytes);
}

std::string encode(const StoreCommand& command) {
  std::string out;
  put_u8(out, static_cast<uint8_t>(command.op));
  const std::string_view operands = kOps.at(static_cast<size_t>(command.op)).operands;
  size_t key = 0;
  size_t value = 0;
  const bool repeated = operands.starts_with('n');
  if (repeated) put_i64(out, static_cast<int64_t>(command.keys.size()));
  const size_t rounds = repeated ? command.keys.size() : 1;
  for (size_t round = 0; round < rounds; ++round) {
    for (const char kind : operands.substr(repeated ? 1 : 0)) {
      if (kind == 'k') put_blob(out, command.keys.at(key++));
      if (kind == 'v') put_blob(out, command.values.at(value++));
      if (kind == 'i') put_i64(out, command.number);
      if (kind == 'u') put_u32(out, static_cast<uint32_t>(command.number));
    }
  }
  return out;
}

}  // namespace lockstep::rendezvous
