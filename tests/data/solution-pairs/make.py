#!/usr/bin/env python3
"""Writes train.jsonl and validation.jsonl from GSM8K's pairs of a right and a wrong solution. No packages needed.

Usage: make.py preferences.jsonl    (rows of prompt, chosen, rejected)
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
TRAIN, VALIDATION, LONGEST = 400, 100, 420


def main():
    rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
    rows = [row for row in rows if all(len(row[key]) <= LONGEST for key in ("prompt", "chosen", "rejected"))]
    made = []
    for i, row in enumerate(rows):
        # A right and a wrong solution of each problem lie in the same split; which comes first alternates.
        for key in ("chosen", "rejected") if i % 2 == 0 else ("rejected", "chosen"):
            made.append({"question": row["prompt"], "solution": row[key], "label": "right" if key == "chosen" else "wrong"})
    parts = {"train": made[:TRAIN], "validation": made[TRAIN : TRAIN + VALIDATION]}
    for name, part in parts.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        (HERE / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(name, len(part), len(text))


main()
