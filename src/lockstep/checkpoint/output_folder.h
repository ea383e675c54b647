#pragma once

#include <filesystem>

namespace lockstep::checkpoint {

namespace fs = std::filesystem;

/// Checks `folder` before anything is computed: it can be written, and it is absent, empty, or holds an earlier model
/// or run (as trl does, its files are replaced and the rest is kept). A folder with other things in it is
/// Error{Usage} unless `overwrite`, so that a mistyped path harms nothing.
void require_usable_output(const fs::path& folder, bool overwrite);

/// Hard-links into `aside` what `folder` holds besides: everything that `aside` does not have itself, except weight
/// files and indices of an earlier model, which would contradict the new ones. After it `aside` may be exchanged with
/// `folder` and nothing of the user's is lost.
void carry_over(const fs::path& folder, const fs::path& aside);

}  // namespace lockstep::checkpoint
