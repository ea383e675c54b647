# Shared by the scripts of this folder; source it, do not run it. Sets ROOT, the repository's folder.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SCRIPT_NAME=$(basename "$0")

say() { printf '%s: %s\n' "$SCRIPT_NAME" "$*"; }

# die EXIT_CODE MESSAGE: what happened and what to do. Exit codes are those of lockstep (2 usage, 4 environment).
die() {
  local code=$1
  shift
  printf '%s: error: %s\n' "$SCRIPT_NAME" "$*" >&2
  exit "$code"
}

# Prints the comment block at the top of the calling script.
usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# The folder a configure preset builds in, as CMakePresets.json says it.
build_folder() { if [ "$1" = release ]; then echo "$ROOT/build"; else echo "$ROOT/build-$1"; fi; }

OLDEST_CARGO=1.85

# Prints the path of the first cargo that is new enough; fails when there is none.
find_cargo() {
  local candidate version
  for candidate in "$(command -v cargo || true)" "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" /usr/bin/cargo; do
    [ -n "$candidate" ] && [ -x "$candidate" ] || continue
    version=$("$candidate" --version 2>/dev/null | cut -d' ' -f2) || continue
    if [ "$(printf '%s\n%s\n' "$OLDEST_CARGO" "$version" | sort -V | head -n1)" = "$OLDEST_CARGO" ]; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}
