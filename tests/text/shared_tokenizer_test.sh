#!/usr/bin/env bash
# The tokenizer tests on a folder of $LOCKSTEP_SHARED/tokenizers that the repository may not keep.
#
# usage: shared_tokenizer_test.sh TEXT_TEST NAME
set -euo pipefail
program=$1
source=${LOCKSTEP_SHARED:?names the folder that holds tokenizers/$2; set it, or leave the tests labelled shared out}/tokenizers/$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/$2"
for file in "$source"/*; do
  case "$file" in
    *.xz) xz -dc "$file" > "$work/$2/$(basename "$file" .xz)" ;;
    *) cp "$file" "$work/$2/" ;;
  esac
done
LOCKSTEP_TOKENIZERS=$work "$program" --gtest_filter='*TokenizerGolden*'
