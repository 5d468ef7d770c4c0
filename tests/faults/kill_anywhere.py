"""Trials: kill -9 a random task at a random moment, let the launcher start the cluster again, compare the weights.

    python tests/faults/kill_anywhere.py --trials 50

Each trial trains the tutorials' network on MNIST (the digits inside Stratagem without STRATAGEM_DATA) with two workers,
shuffled data and a backup every 7 steps, under `stratagem run --max-restarts 3`. It is killed once, anywhere between
its start and the time that an undisturbed run takes. All trials must end with the very weights of that run, and
without a backup left.

    python tests/faults/kill_anywhere.py --servers --trials 20

does so to the chief, two workers and two parameter servers of `trains_with_servers.py`. All trials must end with all
epochs, and every example seen in each: once, or, where a worker was killed, twice for what it had under way.
"""

from __future__ import annotations

import argparse
import json
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

from stratagem.testing.launched import tasks_of

ALIKE = Path(__file__).with_name("trains_mnist.py")
SERVED = Path(__file__).with_name("trains_with_servers.py")


class Outcome(NamedTuple):
    """How one run of the launcher ended."""

    seconds: float
    killed: str
    weights: list[bytes]
    fault: str


def run(program: Path, folder: Path, kill_after: float | None, choose: random.Random) -> Outcome:
    """Train once; kill one of the tasks `kill_after` seconds after the start, if there is one then."""
    command = [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--max-restarts", "3"]
    command += ["--ps", "2", "--log-dir"] if program == SERVED else ["--log-dir"]
    start = time.monotonic()
    with (folder / "output").open("wb") as output:
        launcher = subprocess.Popen(
            [*command, str(folder / "logs"), str(program), str(folder)], stdout=output, stderr=subprocess.STDOUT
        )
        killed = "nobody"
        if kill_after is not None:
            try:
                launcher.wait(kill_after)
            except subprocess.TimeoutExpired:
                killed = _kill_one(launcher.pid, choose)
        code = launcher.wait(timeout=600)
    faults = [f"exit code {code}" if code else "", "a backup was left" if (folder / "backup").exists() else ""]
    if program == SERVED:
        weights: list[bytes] = []
        faults += [] if code else _miscounted(json.loads((folder / "end.json").read_text()), killed)
    else:
        saved = sorted(folder.glob("weights-*.npz"))
        weights = [b"".join(np.load(file)[name].tobytes() for name in np.load(file).files) for file in saved]
        faults += [] if len(saved) == 2 else [f"{len(saved)} of 2 workers ended"]
    return Outcome(time.monotonic() - start, killed, weights, ", ".join(filter(None, faults)))


def _miscounted(end: dict, killed: str) -> list[str]:
    """Return what is wrong with the counts of a run with parameter servers."""
    epochs, steps = end["counts"]["epochs"], end["counts"]["steps"]
    examples = len(end["times"][0])
    again = 1 if killed.startswith("worker") else 0  # steps that may count twice
    twice = sum(times - 1 for epoch in end["times"] for times in epoch)
    faults = {
        f"{end['epochs']} epochs in the history": end["epochs"] != epochs,
        f"{end['iterations']} updates": not epochs * steps <= end["iterations"] <= epochs * steps + again,
        f"{len(end['times'])} epochs counted": len(end["times"]) != epochs,
        "examples lost": min(min(epoch) for epoch in end["times"]) < 1,
        f"{twice} examples twice": twice > again * examples // steps,
    }
    return [fault for fault, holds in faults.items() if holds]


def _kill_one(launcher: int, choose: random.Random) -> str:
    """Kill a task of a launcher; return its name."""
    tasks = tasks_of(launcher)
    if not tasks:
        return "nobody: no task was there"
    name = choose.choice(sorted(tasks))
    os.kill(tasks[name], signal.SIGKILL)
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--servers", action="store_true", help="Chief, workers and parameter servers.")
    options = parser.parse_args()
    program = SERVED if options.servers else ALIKE
    choose = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        (folder := Path(place, "undisturbed")).mkdir()
        whole = run(program, folder, None, choose)
        if whole.fault or any(weights != whole.weights[0] for weights in whole.weights):
            print((folder / "output").read_text())
            print(f"The undisturbed run: {whole.fault or 'the workers differ'}")
            return 1
        print(f"undisturbed: {whole.seconds:.1f} s", flush=True)
        good = disturbed = 0
        for trial in range(options.trials):
            (folder := Path(place, str(trial))).mkdir()
            after = choose.uniform(0, whole.seconds)
            outcome = run(program, folder, after, choose)
            same = outcome.weights == whole.weights
            good += same and not outcome.fault
            disturbed += not outcome.killed.startswith("nobody")
            well = "all was counted" if options.servers else "the same weights"
            verdict = outcome.fault or (well if same else "OTHER WEIGHTS")
            print(
                f"{trial + 1}: {outcome.killed}, killed after {after:.1f} s: {verdict}, {outcome.seconds:.1f} s",
                flush=True,
            )
            if not same or outcome.fault:
                print((folder / "output").read_text())
        print(f"{good} of {options.trials} ended as the undisturbed run; {disturbed} were killed.")
    return 0 if good == options.trials else 1


if __name__ == "__main__":
    sys.exit(main())
