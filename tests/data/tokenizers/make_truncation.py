#!/usr/bin/env python3
"""Writes truncation.json: what transformers makes of truncation=True. Needs transformers (5.24.0 wrote the file).

Usage: make_truncation.py > truncation.json
"""
import json
import pathlib

from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
FOLDERS = ["bert-uncased", "tiny-roberta", "tiny-chatml", "tiny-spbpe", "unigram-t5"]
SHORT = "A short one."
LONG = "The quick brown fox jumps over the lazy dog, and then it goes home to sleep for a long time."
OTHER = "Prices rose by 3.5 percent [SEP] last year; caf\u00e9 owners said they had not expected that at all."
TEXTS = [SHORT, LONG, OTHER, ""]
# Not (LONG, ""): given alone an empty second text counts as none, given in a batch, as run_glue does, as a pair.
CASES = [(LONG, None), (SHORT, LONG), (LONG, SHORT), (LONG, OTHER), (OTHER, LONG), ("", LONG), (LONG, LONG)]
LENGTHS = [5, 9, 14, 15, 24, 40]

result = []
for folder in FOLDERS:
    for side in ["right", "left"]:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(HERE / folder / "tokenizer.json"), truncation_side=side)
        for first, second in CASES:
            whole = len(tokenizer(first, second)["input_ids"])
            for length in LENGTHS:
                if length > whole + 1:
                    continue
                made = tokenizer(first, second, truncation=True, max_length=length, return_token_type_ids=True)
                result.append({"folder": folder, "side": side, "texts": [TEXTS.index(text) for text in (first, second) if text is not None], "max_length": length,
                               "ids": made["input_ids"], "type_ids": made["token_type_ids"], "cut": max(0, whole - length)})
print(f'{{"texts": {json.dumps(TEXTS)}, "cases": [')
print(",\n".join(json.dumps(item) for item in result))
print("]}")
