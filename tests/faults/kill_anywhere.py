"""Trials: kill -9 a random task at a random moment, let the launcher start the cluster again, compare the weights.

    python tests/faults/kill_anywhere.py --trials 50

Each trial trains the tutorials' network on MNIST (the digits of scikit-learn without STRATAGEM_DATA) with two workers,
shuffled data and a backup every 7 steps, under `stratagem run --max-restarts 3`. It is killed once, anywhere between
its start and the time that an undisturbed run takes. All trials must end with the very weights of that run, and
without a backup left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

PROGRAM = Path(__file__).with_name("trains_mnist.py")


class Outcome(NamedTuple):
    """How one run of the launcher ended."""

    seconds: float
    killed: str
    weights: list[bytes]
    fault: str


def run(folder: Path, kill_after: float | None, choose: random.Random) -> Outcome:
    """Train once; kill one of the workers `kill_after` seconds after the start, if there is one then."""
    command = [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--max-restarts", "3", "--log-dir"]
    start = time.monotonic()
    with (folder / "output").open("wb") as output:
        launcher = subprocess.Popen(
            [*command, str(folder / "logs"), str(PROGRAM), str(folder)], stdout=output, stderr=subprocess.STDOUT
        )
        killed = "nobody"
        if kill_after is not None:
            try:
                launcher.wait(kill_after)
            except subprocess.TimeoutExpired:
                killed = _kill_one(launcher.pid, choose)
        code = launcher.wait(timeout=600)
    saved = sorted(folder.glob("weights-*.npz"))
    weights = [b"".join(np.load(file)[name].tobytes() for name in np.load(file).files) for file in saved]
    faults = [
        f"exit code {code}" if code else "",
        "" if len(saved) == 2 else f"{len(saved)} of 2 workers ended",
        "a backup was left" if (folder / "backup").exists() else "",
    ]
    return Outcome(time.monotonic() - start, killed, weights, ", ".join(filter(None, faults)))


def _kill_one(launcher: int, choose: random.Random) -> str:
    """Kill a worker of a launcher; return what it was."""
    workers = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes().decode().split("\0")
        except (OSError, IndexError, ValueError):  # it ended while we looked
            continue
        if parent == launcher and str(PROGRAM) in command:
            workers[int(stat.parent.name)] = len(workers)
    if not workers:
        return "nobody: no worker was there"
    pid = choose.choice(sorted(workers))
    os.kill(pid, signal.SIGKILL)
    return f"worker {sorted(workers).index(pid)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    choose = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        (folder := Path(place, "undisturbed")).mkdir()
        whole = run(folder, None, choose)
        if whole.fault or whole.weights[0] != whole.weights[1]:
            print((folder / "output").read_text())
            print(f"The undisturbed run: {whole.fault or 'the workers differ'}")
            return 1
        print(f"undisturbed: {whole.seconds:.1f} s", flush=True)
        good = disturbed = 0
        for trial in range(options.trials):
            (folder := Path(place, str(trial))).mkdir()
            after = choose.uniform(0, whole.seconds)
            outcome = run(folder, after, choose)
            same = outcome.weights == whole.weights
            good += same and not outcome.fault
            disturbed += outcome.killed.startswith("worker")
            verdict = outcome.fault or ("the same weights" if same else "OTHER WEIGHTS")
            print(
                f"{trial + 1}: {outcome.killed}, killed after {after:.1f} s: {verdict}, {outcome.seconds:.1f} s",
                flush=True,
            )
            if not same or outcome.fault:
                print((folder / "output").read_text())
        print(f"{good} of {options.trials} ended with the weights of the undisturbed run; {disturbed} were killed.")
    return 0 if good == options.trials else 1


if __name__ == "__main__":
    sys.exit(main())
