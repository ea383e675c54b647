#pragma once

namespace lockstep {
class ThreadTeam;
}

namespace lockstep::library {

/// What the launcher sets for lockstep's workers and a program of its own cannot count on: one libtorch thread in each thread of
/// the team and in this one, MKL's bit-stable mode. Then asks the libraries whether it holds. Throws Error{Environment}.
void use_bit_stable_settings(ThreadTeam& team);

}  // namespace lockstep::library
