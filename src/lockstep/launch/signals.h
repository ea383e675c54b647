#pragma once

#include "lockstep/base/files.h"

#include <csignal>
#include <vector>

namespace lockstep::launch {

/// What a user or a batch system ends a program with.
inline const std::vector<int> kUsualSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// While it lives, `signals` and SIGCHLD reach the calling thread only through read(), and a write to a closed pipe or
/// beyond a size limit is an error instead of a SIGPIPE or SIGXFSZ. A signal that was ignored stays so (nohup). On
/// destruction everything is as before; what was not read is dropped.
class SignalReader {
 public:
  explicit SignalReader(const std::vector<int>& signals = kUsualSignals);
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  ~SignalReader();

  /// Readable when read() has something to return.
  int fd() const { return fd_.get(); }
  /// The signals that have come since the last call; never blocks.
  std::vector<int> read();
  /// The mask to give to children.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  UniqueFd fd_;
  sigset_t mask_before_ = {};
  struct sigaction child_before_ = {};
};

}  // namespace lockstep::launch
