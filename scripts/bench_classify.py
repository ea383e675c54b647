"""`scripts/bench classify`: MRPC on all-MiniLM-L6-v2, B = 32, dropout on, beside transformers' Trainer in one run.

Four programs take turns, `repeat` times, each with two threads: transformers in float32 and with --bf16 (autocast), lockstep in
float32 and bfloat16. Of each: samples per second (the first two updates left out, which generate code and touch memory),
seconds from the command to the end of the first update, and memory (largest PSS over all processes). Needs
$LOCKSTEP_SHARED/data/mrpc, scripts/fetch-minilm, scripts/peer-check --install (the peer's environment).
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_common import BIN, ROOT, PeakMemory, machine

MODEL = Path(os.environ.get("LOCKSTEP_MINILM", ROOT / ".models/all-MiniLM-L6-v2"))
DATA = Path(os.environ.get("LOCKSTEP_SHARED", "/nowhere")) / "data/mrpc"
PEER = ROOT / ".deps/peer/bin/python"
BATCH, THREADS, LEFT_OUT = 32, 2, 2

PEER_PROGRAM = """
import json, sys, time
import torch, transformers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments
model, data, out, updates, bf16 = sys.argv[1:]
torch.set_num_threads(THREADS)
rows = [json.loads(line) for line in open(data + "/train.jsonl")]
tokenizer = AutoTokenizer.from_pretrained(model)
encoded = [dict(tokenizer(row["sentence1"], row["sentence2"], truncation=True), labels=row["label"]) for row in rows]
class Times(transformers.TrainerCallback):
    ends = []
    losses = []
    def on_step_end(self, *args, **kwargs):
        self.ends.append(time.time())
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs: self.losses.append(float(logs["loss"]))
arguments = TrainingArguments(output_dir=out, max_steps=int(updates), per_device_train_batch_size=BATCH, save_strategy="no",
                              report_to="none", use_cpu=True, bf16=bf16 == "true", logging_steps=1, disable_tqdm=True)
times = Times()
trainer = Trainer(model=AutoModelForSequenceClassification.from_pretrained(model, num_labels=2), args=arguments,
                  train_dataset=encoded, data_collator=DataCollatorWithPadding(tokenizer), callbacks=[times])
trainer.train()
print(json.dumps({"ends": times.ends, "losses": times.losses}))
""".replace("BATCH", str(BATCH)).replace("THREADS", str(THREADS))


def run_peer(folder, updates, bf16):
    started = time.time()
    process = subprocess.Popen([PEER, "-c", PEER_PROGRAM, MODEL, DATA, folder, str(updates), "true" if bf16 else "false"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1"})
    with PeakMemory(process.pid) as peak:
        text = process.stdout.read()
        process.wait()
    if process.returncode != 0:
        sys.exit(f"bench: transformers ended with {process.returncode}")
    found = json.loads(text.splitlines()[-1])
    return started, found["ends"], found["losses"], peak.pss


def run_ours(folder, updates, bf16):
    metrics = Path(folder) / "metrics.jsonl"
    started = time.time()
    process = subprocess.Popen([BIN / "lockstep", "classify", "--model_name_or_path", MODEL, "--task", "mrpc", "--dataset_name",
                                DATA, "--output_dir", folder, "--max_steps", str(updates), "--per_device_train_batch_size",
                                str(BATCH), "--save_strategy", "no", "--bf16", "true" if bf16 else "false", "--nproc_per_node",
                                "1", "--threads_per_process", str(THREADS), "--do_train"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with PeakMemory(process.pid) as peak:
        first = None
        while first is None and process.poll() is None:
            time.sleep(0.002)
            if metrics.exists() and metrics.stat().st_size > 0:
                first = time.time()
        errors = process.stderr.read()
        process.wait()
    if process.returncode != 0:
        sys.exit(f"bench: lockstep ended with {process.returncode}:\n{errors}")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines = [line for line in lines if "step_ms" in line]
    ends = [first]
    for line in lines[1:]:
        ends.append(ends[-1] + line["step_ms"] / 1e3)
    return started, ends, [line["loss"] for line in lines], peak.pss


def check(name, losses, updates):
    """Verify before timing: a run that does not train measures nothing."""
    if len(losses) != updates or any(not 0.2 < loss < 1.2 for loss in losses):
        sys.exit(f"bench: {name}: unexpected losses {losses}")


def main(updates, repeat, output):
    for path, remedy in ((BIN / "lockstep", "scripts/build"), (MODEL / "model.safetensors", "scripts/fetch-minilm"),
                         (DATA, "set LOCKSTEP_SHARED"), (PEER, "scripts/peer-check --install")):
        if not path.exists():
            sys.exit(f"bench: {path} is missing: {remedy}")
    updates = max(updates, LEFT_OUT + 6)
    programs = {"transformers float32": (run_peer, False), "transformers bfloat16": (run_peer, True),
                "lockstep float32": (run_ours, False), "lockstep bfloat16": (run_ours, True)}
    found = {name: [] for name in programs}
    print(f"MRPC on all-MiniLM-L6-v2, B = {BATCH}, {THREADS} threads, {updates} updates; {machine()}", flush=True)
    for number in range(repeat):
        for name, (run, bf16) in programs.items():
            with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
                started, ends, losses, pss = run(folder + "/out", updates, bf16)
            check(name, losses, updates)
            rate = BATCH * (len(ends) - LEFT_OUT) / (ends[-1] - ends[LEFT_OUT - 1])
            found[name].append((rate, ends[0] - started, pss))
            print(f"  {number + 1} {name:22} {rate:7.1f} samples/s, first update after {ends[0] - started:5.2f} s, "
                  f"PSS {pss / 1e9:.2f} GB", flush=True)
    middle = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in found.items()}
    lines = ["| | samples/s | first update after | PSS |", "| --- | --- | --- | --- |"]
    for name, (rate, first, pss) in middle.items():
        lines.append(f"| {name} | {rate:.1f} | {first:.2f} s | {pss / 1e9:.2f} GB |")
    ours32, ours16 = middle["lockstep float32"], middle["lockstep bfloat16"]
    peer32, peer16 = middle["transformers float32"], middle["transformers bfloat16"]
    ratios = {"float32_over_float32": ours32[0] / peer32[0], "bfloat16_over_float32": ours16[0] / peer32[0],
              "bfloat16_over_bfloat16": ours16[0] / peer16[0], "start_sooner": peer32[1] / ours32[1],
              "memory": ours32[2] / peer32[2]}
    print("\n" + "\n".join(lines) + "\n")
    if output:
        Path(output).write_text(f"# Classification speed\n\n{machine()}\n\nscripts/bench classify --updates {updates} "
                                f"--repeat {repeat}\n\n" + "\n".join(lines) + "\n\n" + json.dumps(ratios) + "\n")
    print(json.dumps({name: round(value, 3) for name, value in ratios.items()}))
