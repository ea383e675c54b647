#!/usr/bin/env python3
"""Writes packing.json: the bins that trl 1.16.0 packs rows of random lengths into.

usage: make_packing.py   (needs pyarrow, numpy, datasets and trl 1.16.0; transformers is not used)
"""
import json
import pathlib
import random
import sys
import types

for name in ("transformers", "transformers.utils", "jinja2"):
    module = types.ModuleType(name)
    module.__getattr__ = lambda attribute: type(attribute, (), {})
    sys.modules.setdefault(name, module)
import pyarrow as pa  # noqa: E402
from trl import data_utils  # noqa: E402


def bins(lengths, max_length, strategy):
    """Each bin as [row, begin, length] of its pieces; a token is its row and its place."""
    rows = [[row * 100000 + at for at in range(length)] for row, length in enumerate(lengths)]
    table = pa.table({"input_ids": pa.array(rows, pa.list_(pa.int64()))})
    if strategy == "wrapped":
        packed = data_utils._pack_wrapped(table, max_length)
        documents = [[len(ids)] for ids in packed["input_ids"].to_pylist()]
    else:
        overflow = "truncate" if strategy == "bfd" else "split"
        packed = data_utils._pack_bfd(table, max_length, overflow)
        documents = packed["seq_lengths"].to_pylist()
    result = []
    for ids, lengths_of_bin in zip(packed["input_ids"].to_pylist(), documents):
        pieces, at = [], 0
        for length in lengths_of_bin:
            for token in ids[at:at + length]:
                row, begin = divmod(token, 100000)
                if pieces and pieces[-1][0] == row and sum(pieces[-1][1:]) == begin and strategy == "wrapped":
                    pieces[-1][2] += 1
                elif token == ids[at] or (strategy == "wrapped"):
                    pieces.append([row, begin, 1])
                else:
                    pieces[-1][2] += 1
            at += length
        result.append(pieces)
    return result


generator = random.Random(16)
cases = []
for count, longest, max_length in ((4, 0, 4), (60, 12, 8), (150, 40, 32), (1000, 300, 256)):
    lengths = [5, 2, 3, 1] if longest == 0 else [int(longest * generator.random() ** 1.5) for _ in range(count)]
    for strategy in ("bfd", "bfd_split", "wrapped"):
        if count == 1000 and strategy == "wrapped":
            continue
        cases.append({"strategy": strategy, "max_length": max_length, "lengths": lengths,
                      "bins": bins(lengths, max_length, strategy)})
path = pathlib.Path(__file__).with_name("packing.json")
path.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")
