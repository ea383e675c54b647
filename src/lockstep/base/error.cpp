#include "lockstep/base/error.h"

#include <array>

namespace lockstep {
namespace {

struct KindEntry {
  ErrorKind kind;
  int exit_code;
  std::string_view name;
};

constexpr std::array kKinds{
    KindEntry{ErrorKind::Usage, 2, "Usage"},         KindEntry{ErrorKind::Data, 3, "Data"},
    KindEntry{ErrorKind::Environment, 4, "Environment"}, KindEntry{ErrorKind::Peer, 5, "Peer"},
    KindEntry{ErrorKind::Timeout, 6, "Timeout"},     KindEntry{ErrorKind::NonFinite, 7, "NonFinite"},
    KindEntry{ErrorKind::OtherBits, 8, "OtherBits"},
    KindEntry{ErrorKind::Internal, 70, "Internal"},  KindEntry{ErrorKind::Resumable, 75, "Resumable"},
};

const KindEntry& entry_of(ErrorKind kind) {
  for (const KindEntry& entry : kKinds) {
    if (entry.kind == kind) return entry;
  }
  return entry_of(ErrorKind::Internal);
}

}  // namespace

int exit_code(ErrorKind kind) { return entry_of(kind).exit_code; }

std::string_view name(ErrorKind kind) { return entry_of(kind).name; }

ErrorKind error_kind_from_name(std::string_view text) {
  for (const KindEntry& entry : kKinds) {
    if (entry.name == text) return entry.kind;
  }
  return ErrorKind::Internal;
}

namespace detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error::internal("{}:{}: '{}' does not hold: {}. This is a bug of lockstep; please report it with this line.",
                        file, line, condition, message);
}

}  // namespace detail
}  // namespace lockstep
