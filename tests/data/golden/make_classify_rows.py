#!/usr/bin/env python3
"""Writes classify-rows.json: what transformers makes of the rows of pair tasks. Needs transformers (5.24.0 wrote the file).

Usage: make_classify_rows.py [MRPC_FOLDER] > classify-rows.json
"""
import json
import pathlib
import sys

from transformers import PreTrainedTokenizerFast

DATA = pathlib.Path(__file__).parent.parent


def rows_of(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def summary(tokenizer, rows, columns, length):
    made = [tokenizer(row[columns[0]], row[columns[1]], truncation=True, max_length=length, return_token_type_ids=True)
            for row in rows]
    whole = [tokenizer(row[columns[0]], row[columns[1]]) for row in rows]
    hashed = 0
    for row in made:
        for token, kind in zip(row["input_ids"], row["token_type_ids"]):
            hashed = (hashed * 1099511628211 + 2 * token + kind + 1) % 2**64
    cut = [len(a["input_ids"]) - len(b["input_ids"]) for a, b in zip(whole, made)]
    return {"max_length": length, "num_rows": len(rows), "num_tokens": sum(len(row["input_ids"]) for row in made),
            "num_truncated": sum(number > 0 for number in cut), "num_tokens_cut": sum(cut), "hash": str(hashed)}


tokenizers = DATA / "tokenizers"
made = []


def lengths(folder, wanted):
    """Rows are never longer than tokenizer_config.json's model_max_length, as run_glue.py has it."""
    config = json.load(open(tokenizers / folder / "tokenizer_config.json"))
    return [length for length in wanted if length <= config.get("model_max_length", length)]


for folder in ["bert-uncased", "tiny-roberta"]:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizers / folder / "tokenizer.json"))
    for split in ["train", "validation"]:
        for length in lengths(folder, [64, 512]):
            rows = rows_of(DATA / "solution-pairs" / f"{split}.jsonl")
            made.append({"data": "solution-pairs", "tokenizer": folder, "split": split,
                         **summary(tokenizer, rows, ["question", "solution"], length)})
        if len(sys.argv) > 1:
            for length in lengths(folder, [48, 128, 512]):
                rows = rows_of(pathlib.Path(sys.argv[1]) / f"{split}.jsonl")
                made.append({"data": "mrpc", "tokenizer": folder, "split": split,
                             **summary(tokenizer, rows, ["sentence1", "sentence2"], length)})
print("[\n" + ",\n".join(json.dumps(item) for item in made) + "\n]")
