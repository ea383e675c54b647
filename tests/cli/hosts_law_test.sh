#!/usr/bin/env bash
# lockstep sft over two and three hosts with networks of their own gives the bits of one host.
# usage: hosts_law_test.sh LOCKSTEP TEST_DATA
set -euo pipefail
lockstep=$1 data=$2
hosts=${LOCKSTEP_SHARED:?names the folder that holds netns/hosts; set it, or leave the tests labelled shared out}/netns/hosts
export HOSTS_NAME=law$$
folder=$(mktemp -d)
trap '"$hosts" down >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
"$hosts" up 3 >"$folder/up.log" 2>&1 || { cat "$folder/up.log" >&2; exit 1; }

flags=(--model_name_or_path "$data/models/tiny/llama" --dataset_name "$data/gsm8k/chats-96.jsonl" --max_length 64
  --max_steps 4 --global_batch_size 24 --grain_tokens 256 --threads_per_process 1 --save_optimizer_state true)
"$lockstep" sft "${flags[@]}" --output_dir "$folder/one" >"$folder/one.log" 2>&1

for count in 2 3; do
  pids=()
  for ((host = 0; host < count; ++host)); do
    "$hosts" exec "$host" "$lockstep" sft "${flags[@]}" --output_dir "$folder/$count" --nnodes "$count" --node_rank "$host" \
      --rdzv_backend c10d --rdzv_endpoint 10.77.0.1:29500 >"$folder/$count.$host.log" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || { cat "$folder/$count".*.log >&2; exit 1; }
  done
  for name in model optimizer_state; do cmp "$folder/one/$name.safetensors" "$folder/$count/$name.safetensors"; done
  # Hosts without names: libtorch's own warnings about them are of no use to anybody.
  if grep -F '[c10d]' "$folder/$count".*.log; then exit 1; fi
  echo "$count hosts: the bits of one"
done
