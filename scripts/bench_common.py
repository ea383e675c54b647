"""What the benchmarks of whole commands share: the machine, and the memory of a command with all its processes."""
import os
import subprocess
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(os.environ.get("LOCKSTEP_BIN_DIR", ROOT / "build" / "bin"))


def pss_of(pids):
    """Proportional set size of processes, in bytes: shared pages count once over all of them."""
    total = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except (OSError, ProcessLookupError):
            pass
    return total


def descendants(pid):
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for task in Path(f"/proc/{current}/task").glob("*/children") if os.path.exists(f"/proc/{current}") else []:
            try:
                todo += [int(child) for child in task.read_text().split()]
            except OSError:
                pass
    return found


class PeakMemory:
    """The largest PSS of a process and its descendants while this is open."""

    def __init__(self, pid):
        self.pid, self.pss, self._done = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self._done.wait(0.5):
            self.pss = max(self.pss, pss_of(descendants(self.pid)))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()


def machine():
    cpu = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return f"commit {commit.stdout.strip() or 'unknown'}, {len(cpu)} x {cpu[0] if cpu else 'unknown CPU'}"
