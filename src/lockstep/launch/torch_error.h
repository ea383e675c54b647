#pragma once

#include "lockstep/launch/worker_end.h"

#include <optional>
#include <span>
#include <string>

namespace lockstep::launch {

/// The error.json that torch's record decorator (or a program that does as it does) has written at `path`; absent when
/// there is none. One that cannot be understood is returned with a message that says so.
std::optional<TorchError> read_torch_error(const std::string& path);

/// Copies the root cause's error file to the launcher's own, with the worker's exit code (negative: its signal) as
/// errorCode inside the message object, as torchrun does. Returns what went wrong, or an empty text.
std::string hand_up_torch_error(const TorchError& error, int exit_code, const fs::path& target);

/// torchrun's failure summary: the failures among `ends` but not the victims of the stop, the cause last. `host` is
/// this machine's name; times are local. Ends in a newline.
std::string torchrun_summary(const std::string& entry_name, const std::string& host, std::span<const WorkerEnd> ends,
                             const Cause& cause);

/// torch's form of an end: the status, or minus the signal.
int torch_exit_code(const WorkerEnd& end);

}  // namespace lockstep::launch
