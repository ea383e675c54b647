#!/usr/bin/env python3
"""Writes the Parquet, Arrow and save_to_disk files of this folder, and expected.jsonl with what they hold.

usage: make_arrow.py   (needs datasets 5.2.0 and pyarrow 26.0.1)
"""
import itertools
import json
import pathlib
import shutil

import datasets
import datasets.fingerprint
import pyarrow as pa
import pyarrow.parquet as pq

counter = itertools.count()
datasets.fingerprint.Hasher.hash = classmethod(lambda cls, value: f"{next(counter):016x}")  # no pickling of the environment
HERE = pathlib.Path(__file__).parent
ROWS = [{"messages": [{"role": "user", "content": f"Wie heißt \"{i}\"?\n\tOder {i}\\?", "tool_calls": None},
                      {"role": "assistant", "content": "", "tool_calls": {"name": "add", "arguments": {"a": [i, None, 2.0]}}}],
         "ids": list(range(i)), "score": i / 4, "label": i % 2, "flag": i % 3 == 0 if i else None} for i in range(7)]
features = datasets.Features({
    "messages": datasets.List({"role": datasets.Value("string"), "content": datasets.Value("large_string"),
                               "tool_calls": datasets.Json()}),
    "ids": datasets.List(datasets.Value("int32")), "score": datasets.Value("float32"),
    "label": datasets.ClassLabel(names=["no", "yes"]), "flag": datasets.Value("bool")})
data = datasets.Dataset.from_list(ROWS, features=features)

for name in ("saved", "saved_splits"):
    shutil.rmtree(HERE / name, ignore_errors=True)
data.save_to_disk(HERE / "saved", num_shards=2)
datasets.DatasetDict({"train": data.select(range(5)), "test": data.select(range(5, 7))}).save_to_disk(HERE / "saved_splits")
data.to_parquet(HERE / "rows.parquet", batch_size=3)
for codec in ("zstd", "gzip", "brotli", "lz4"):
    pq.write_table(data.data.table.combine_chunks(), HERE / f"rows_{codec}.parquet", compression=codec, row_group_size=4)
with pa.ipc.new_file(HERE / "file.arrow", data.data.table.schema) as file:
    file.write_table(data.data.table.combine_chunks(), max_chunksize=2)
types = pa.table({
    "i8": pa.array([-1, None], pa.int8()), "u64": pa.array([2**63, 0], pa.uint64()), "f64": pa.array([0.1, float("nan")]),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(), "view": pa.array(["long enough to be no inline text", None], pa.string_view()),
    "bytes": pa.array([b"\xff\x00", b""]), "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
    "large": pa.array([[1.5], None], pa.large_list(pa.float64())), "date": pa.array([0, 1], pa.date32()),
    "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())), "null": pa.nulls(2)})
with pa.ipc.new_stream(HERE / "types.arrow", types.schema) as stream:
    stream.write_table(types)
(HERE / "expected.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in data))
