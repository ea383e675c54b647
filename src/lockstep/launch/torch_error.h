#pragma once

#include "lockstep/launch/worker_end.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// The error.json that torch's record decorator (or a program that does as it does) has written at `path`; absent when
/// there is none. One that cannot be understood is returned with a message that says so.
std::optional<TorchError> read_torch_error(const std::string& path);

/// Pure. What the text of such a file says. Throws for one that cannot be understood; the time is the timestamp's.
TorchError parse_torch_error(std::string_view text);
/// Pure. The text with `exit_code` as errorCode inside its message object, where that is one. Throws as above.
std::string with_exit_code(std::string_view text, int exit_code);

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
