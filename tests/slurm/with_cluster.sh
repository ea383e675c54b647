#!/usr/bin/env bash
# Runs a command beside a SLURM cluster of its own, which is always taken down: at the end, on a signal, and, when this
# script itself was killed, at the start of the next one. The cluster is $LOCKSTEP_SHARED/slurm/cluster (needs root).
#
# usage: with_cluster.sh SECONDS [OPTION OF cluster up ...] -- COMMAND ...
#   SECONDS   longest run of the command; then it gets SIGTERM, and SIGKILL 5 s later
# The command sees SLURM_CONF (srun and its kin find the cluster by it) and SLURM_CLUSTER_DIR.
set -uo pipefail

cluster=${LOCKSTEP_SHARED:?names the folder that holds slurm/cluster; set it, or leave the tests labelled shared out}/slurm/cluster
limit=$1
shift
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  options+=("$1")
  shift
done
[ $# -ge 2 ] || { echo "with_cluster.sh: there is no command after --" >&2; exit 2; }
shift

parent=${TMPDIR:-/tmp}
export SLURM_CLUSTER_DIR=$parent/lockstep-slurm.$$

# Clusters whose script is gone.
for folder in "$parent"/lockstep-slurm.*; do
  owner=${folder##*.}
  if [ -d "$folder" ] && [ "$folder" != "$SLURM_CLUSTER_DIR" ] && ! kill -0 "$owner" 2>/dev/null; then
    echo "with_cluster.sh: takes down $folder, which process $owner left" >&2
    SLURM_CLUSTER_DIR=$folder "$cluster" down >&2
    rm -rf "$folder"
  fi
done

child=
finish() {
  trap '' EXIT INT TERM HUP
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
  "$cluster" down >&2 || echo "with_cluster.sh: the cluster in $SLURM_CLUSTER_DIR did not go down in order" >&2
  rm -rf "$SLURM_CLUSTER_DIR"
}
trap finish EXIT
trap 'exit 143' INT TERM HUP

# The ports are fixed once chosen, so another program may have one: then the next range.
started=no
for attempt in 1 2 3 4 5; do
  port=$((11000 + 20 * ((RANDOM + 7 * attempt) % 400)))
  if "$cluster" up --port "$port" "${options[@]}" >&2; then
    started=yes
    break
  fi
done
[ $started = yes ] || { echo "with_cluster.sh: no cluster came up" >&2; exit 1; }
eval "$("$cluster" env)"

timeout --kill-after=5 "$limit" "$@" &
child=$!
wait "$child"
code=$?
child=
exit "$code"
