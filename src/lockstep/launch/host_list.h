#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// What a host list may grow to. Slurm's own tools stop at 65,536 hosts in a range.
struct HostListLimits {
  size_t max_hosts = 65'536;
  size_t max_name = 255;         ///< characters of one name
  size_t max_text = 1 << 20;     ///< characters of the list
};

/// The names that a SLURM host list stands for, in its order: "n[0-2,7],gpu[008-010]-ib,login" or "host*3". A name may
/// hold several groups; the last varies fastest, then the first, then the second, as in scontrol. The first number of a
/// range gives the width, so leading zeros stay. `name*N` repeats each name of its item N times. An empty list gives no
/// names.
/// Beyond what `scontrol show hostnames` reads, a group may be followed by letters. What only looks like a list (empty
/// items, blanks, reversed ranges, open brackets) is refused, though scontrol guesses at some of it.
/// Throws Error{Usage}: "`origin`=TEXT, character 5: ...", counted from 1.
std::vector<std::string> parse_host_list(std::string_view text, std::string_view origin,
                                         const HostListLimits& limits = {});

}  // namespace lockstep::launch
