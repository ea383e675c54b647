#pragma once

#include "lockstep/options/field.h"

namespace lockstep::options {

/// Holds every value against its option: class, choices, pattern, range, JSON. Adds to `problems` what is refused or
/// out of range (flag, value, origin, remedy), and to `notes` one line for each value that has no object here. A value
/// equal to the default passes silently, except a note that the option asks for when it is given.
void check(const Fields& fields, const Origins& origins, Problems& problems, Words& notes);

}  // namespace lockstep::options
