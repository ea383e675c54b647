#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// Credentials of munge, which most SLURM clusters run: text that only processes of this user can open, on any node
/// that has the cluster's key, and that tells who sealed it. libmunge is loaded at run time; nothing is needed to
/// build. A call asks the node's munged over a local socket (well under a millisecond; at most some seconds when it
/// hangs). Not thread-safe.
class Munge {
 public:
  /// `socket`: of munged; empty for the usual one. Tries a credential there and back. nullptr, and the reason in `why`,
  /// when there is no library, no daemon or no answer (usual inside containers).
  static std::unique_ptr<Munge> open(const std::string& socket, std::string& why);

  Munge(const Munge&) = delete;
  Munge& operator=(const Munge&) = delete;
  ~Munge();

  /// A credential that holds `payload` and that only this user can open. About 4/3 of the payload and 150 bytes more,
  /// of printable ASCII without blanks. Throws Error{Environment}.
  std::string seal(std::string_view payload) const;

  /// What this user sealed. Nothing, and the reason in `why`, for another user's credential, another cluster's, or what
  /// is none. An old or repeatedly opened credential is taken: whoever uses the content must bind it to a fresh nonce.
  std::optional<std::string> unseal(const std::string& credential, std::string& why) const;

 private:
  struct Library;
  explicit Munge(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace lockstep::launch
