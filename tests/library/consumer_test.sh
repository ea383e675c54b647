#!/usr/bin/env bash
# Installs the built lockstep into a folder of its own, then configures, builds and runs a project that finds it there.
#
# usage: consumer_test.sh CMAKE BUILD_FOLDER TESTS_FOLDER
set -euo pipefail
cmake=$1 build=$2 tests=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
# Public headers may not look into the source tree.
if grep -rl "nlohmann\|ATen\|c10/" "$scratch/prefix/include" | grep -v "/torch.h$"; then
  echo "an installed header names what users need not have"
  exit 1
fi
"$cmake" -S "$tests/library/consumer" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_BUILD_TYPE=Debug >"$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log"; exit 1; }
"$cmake" --build "$scratch/build" --parallel 2 >"$scratch/build.log" 2>&1 || { cat "$scratch/build.log"; exit 1; }

run() { env -i PATH="$PATH" HOME="$scratch" "$@"; }
said=$(run "$scratch/build/consumer" "$tests/data/models/tiny/bert" "$tests/data/solution-pairs" "$scratch/out" 2>"$scratch/err") || {
  cat "$scratch/err"
  exit 1
}
case "$said" in "trained 2 updates as rank 0 of 1") ;; *) echo "consumer said: $said"; exit 1 ;; esac
[ -s "$scratch/out/model.safetensors" ]
said=$(run "$scratch/build/consumer_torch") || exit 1
case "$said" in "loss 6.25 gradient -5") ;; *) echo "consumer_torch said: $said"; exit 1 ;; esac
# The installed programs find each other, and start the consumer.
said=$(run "$scratch/prefix/bin/lockstep" run --nproc_per_node 2 "$scratch/build/consumer" "$tests/data/models/tiny/bert" \
  "$tests/data/solution-pairs" "$scratch/out2" 2>"$scratch/err") || { cat "$scratch/err"; exit 1; }
case "$said" in *"trained 2 updates as rank 0 of 2"*) ;; *) echo "under lockstep run: $said"; exit 1 ;; esac
run "$scratch/prefix/bin/lockstep" classify --model_name_or_path "$tests/data/models/tiny/bert" --dataset_name \
  "$tests/data/solution-pairs" --text_column question --text_pair_column solution --max_length 48 \
  --ignore_mismatched_sizes --max_steps 1 --output_dir "$scratch/out3" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
