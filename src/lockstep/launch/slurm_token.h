#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/slurm_environment.h"
#include "lockstep/launch/slurm_munge.h"

#include <functional>
#include <optional>
#include <string>

/// A secret that the agents of one step share, so that they can tell each other from strangers.
///
/// Node 0 makes 32 random bytes for each start of a step and hands them to the others in a file in the submit folder,
/// mode 0600, written aside and renamed: a reader sees all of it or nothing. Munge alone cannot give the same secret to
/// all without a way to carry it (credentials are random); where it works, the file holds the secret sealed:
///
/// - sealed: who can read the folder's disk, its backups or unencrypted NFS traffic learns nothing, and who can write
/// in   the folder can plant nothing: the credential tells that this user made it. Root, and whoever has munge's key,
/// can   open it. A credential of an earlier start is refused, as it names the step and srun's port.
/// - plain: as safe as a 0600 file. Owner and mode are checked, so other users of a shared folder cannot plant one; a
///   file server that is fooled about user ids (plain NFS on an open network) is not defended against.
///
/// Neither hides anything from other processes of the same user, nor from root. The secret itself never crosses the
/// network of the rendezvous.
namespace lockstep::launch {

/// Whose secret, and where it lies.
struct StepSecretPlace {
  fs::path folder;      ///< a folder that all nodes see: the step's submit folder
  std::string name;     ///< of the file
  std::string binding;  ///< cluster, run id and srun's port: a file with another one is not of this start
};
/// Throws Error{Environment} when the step names no submit folder.
StepSecretPlace step_secret_place(const SlurmStep& step);

struct StepSecret {
  std::string secret;  ///< 32 bytes
  std::string how;     ///< for people: "sealed by munge in /home/u/.lockstep-token-...", "file ..."
};

/// On node 0, before it listens: makes and writes a new secret over whatever lies there. `munge` may be nullptr. Throws
/// Error{Environment} with a remedy.
StepSecret publish_step_secret(const StepSecretPlace& place, const Munge* munge);

/// On the other nodes: one look. Nothing, and the reason in `why`, while it is not there. Throws Error{Environment} for
/// a file that is there and not to be trusted: another owner, readable by others (unless sealed), sealed where this
/// node has no munge.
std::optional<StepSecret> read_step_secret(const StepSecretPlace& place, const Munge* munge, std::string& why);

/// Looks until `deadline` (a network file system tells nobody of a new file). `report` gets one line every 5 s. `pause`
/// waits for the given time or less; with false it ends the wait, and nothing is returned. Throws Error{Timeout} that
/// says what to do where the folder is not shared.
std::optional<StepSecret> await_step_secret(const StepSecretPlace& place, const Munge* munge, const Deadline& deadline,
                                            const std::function<void(const std::string&)>& report,
                                            const std::function<bool(Milliseconds)>& pause);

/// On node 0, once all have joined or the job has ended. Never throws.
void remove_step_secret(const StepSecretPlace& place) noexcept;

}  // namespace lockstep::launch
