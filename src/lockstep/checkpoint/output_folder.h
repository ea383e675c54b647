#pragma once

#include "lockstep/base/files.h"

#include <optional>
#include <string>

namespace lockstep::checkpoint {

/// Checks `folder` before anything is computed and changes nothing: it can be written, and it is absent, empty, or holds
/// an earlier model or run (as trl does, its files are replaced and the rest is kept). A folder with other things in it
/// is Error{Usage} unless `overwrite`, so that a mistyped path harms nothing.
void require_usable_output(const fs::path& folder, bool overwrite);

/// Why a finished folder cannot take the place of `folder` in one step, as the second half of a sentence; empty when it
/// can. A mount point cannot be renamed; exchanging the folder one stands in would leave every shell there in a deleted
/// one; a parent that may not be written cannot hold the new folder first.
std::string why_not_exchangeable(const fs::path& folder);

/// The folder of one run, held for it alone from construction to destruction. Not thread-safe.
///
/// A model is prepared out of sight, at staging(), and appears with commit(): the whole folder at once where that is
/// possible, otherwise file by file, each whole, with the weights last, so that a reader finds no weights before all
/// that belongs to them is there. A kill in between leaves the whole new model waiting inside the folder (.model.new) and
/// no weights beside it; the next OutputFolder of that folder finishes.
class OutputFolder {
 public:
  /// Checks as require_usable_output() does, creates the folder and locks it. Error{Environment} with the other's pid
  /// when another run holds it.
  OutputFolder(fs::path folder, bool overwrite);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  /// Removes what is unfinished, and the folder itself if it was made here and is still empty.
  ~OutputFolder();

  const fs::path& path() const { return folder_; }
  /// Renames NAME.EXT, a file of an earlier run, to NAME.previous.EXT, so that a run that fails does not destroy it.
  /// False when there is none.
  bool keep_previous(const std::string& name);
  /// Where the model is to be written; made at the first call.
  const fs::path& staging();
  /// After it the folder holds what staging() held and, of what it held before, everything of another name except
  /// weight files and indices of an earlier model, which would contradict the new ones.
  void commit();

 private:
  void carry_over(const fs::path& from, const fs::path& to) const;
  void move_file_by_file();
  void finish_move();

  fs::path folder_;
  bool created_ = false;
  std::optional<FolderLock> lock_;
  std::optional<AtomicFolder> exchanged_;  ///< exactly one of these two once there is a staging folder
  std::optional<TempFolder> inside_;
};

}  // namespace lockstep::checkpoint
