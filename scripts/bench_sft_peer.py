"""trl's SFTTrainer on the data of `scripts/bench sft`, as its users start it and at its best (docs/perf).

default: SFTConfig's own settings (bf16 autocast on float32 weights, gradient checkpointing), one thread, which is what
torchrun and accelerate give a process. best: the fastest of seven settings that were tried on two cores: bfloat16 weights, no
checkpointing, a thread per core, jemalloc. Both: 8 samples x 4 accumulation = 32, max_length 1024.
"""
import ctypes.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench_common import ROOT, PeakMemory

PEER = ROOT / ".deps/peer/bin/python"
PACKAGES = ["trl==1.16.0", "datasets>=4", "transformers==5.24.0", "torch==2.15.0"]

PROGRAM = """
import json, sys, time
import torch, transformers
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
data, model, out, updates, best = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "best"
more = dict(gradient_checkpointing=False, bf16=False) if best else dict(bf16=True)
if best: model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
class Times(transformers.TrainerCallback):
    ends, losses, tokens = [], [], []
    def on_step_end(self, *args, **kwargs): self.ends.append(time.time())
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(float(logs["loss"])); self.tokens.append(float(logs["num_tokens"]))
arguments = SFTConfig(output_dir=out, max_steps=updates, per_device_train_batch_size=8, gradient_accumulation_steps=4, max_length=1024,
                      learning_rate=2e-5, use_cpu=True, logging_steps=1, report_to="none", save_strategy="no", disable_tqdm=True, **more)
times = Times()
trainer = SFTTrainer(model=model, args=arguments, train_dataset=load_dataset("json", data_files=data, split="train"), callbacks=[times])
trainer.train()
print(json.dumps({"ends": times.ends, "losses": times.losses, "tokens": times.tokens}))
"""


def environment(best):
    env = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count() if best else 1), "HF_HUB_OFFLINE": "1"}
    jemalloc = ctypes.util.find_library("jemalloc")
    if best and jemalloc:
        env["LD_PRELOAD"] = jemalloc
    return env


def install():
    if subprocess.run([PEER, "-c", "import trl"], stderr=subprocess.DEVNULL).returncode == 0 if PEER.exists() else False:
        return
    print(f"bench: installs {', '.join(PACKAGES)} into .deps/peer", flush=True)
    subprocess.run([sys.executable, "-m", "venv", PEER.parent.parent], check=True)
    subprocess.run([PEER, "-m", "pip", "install", "--quiet", "--no-cache-dir", *PACKAGES], check=True)


def run(data, model, folder, updates, setting):
    """Tokens per second without the first update, and the largest PSS over all processes."""
    started = time.time()
    process = subprocess.Popen([PEER, "-c", PROGRAM, data, model, folder, str(updates), setting], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=environment(setting == "best"))
    with PeakMemory(process.pid) as peak:
        text, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(f"bench: trl ended with {process.returncode}:\n{errors[-2000:]}")
    found = json.loads(text.splitlines()[-1])
    losses = found["losses"]
    if len(losses) != updates or any(not 0.5 < loss < 5 for loss in losses):
        sys.exit(f"bench: unexpected losses of trl: {losses}")
    rate = (found["tokens"][-1] - found["tokens"][0]) / (found["ends"][-1] - found["ends"][0])
    return {"setting": setting, "tokens_per_second": round(rate, 2), "pss_bytes": peak.pss,
            "seconds_to_first_update": round(found["ends"][0] - started, 2)}
