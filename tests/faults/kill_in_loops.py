"""Trials: workers of a loop of the program's own are killed and frozen at random points, and must end with its numbers.

    PYTHONPATH=. python tests/faults/kill_in_loops.py --trials 100 [--hosts] [--leave]

Each trial runs `trains_in_a_loop.py` on two or three workers, with a spare for each fault or with `--elastic`, and
one to three faults: behind a step, between the two programs of one, or behind an epoch. With spares, all workers must
end with the bits of an undisturbed run; with `--elastic`, with the numbers of one process within 1e-5. With `--hosts`
there are one or two workers on each of two hosts (`test_elastic_hosts.py`). With `--leave` half of the workers that are
hit are told to leave (SIGTERM). Where all workers were hit at once, or the chief behind its last epoch when the others
had ended, the run must end with 43 and say so; with 42 where all leave. A trial that takes longer than five minutes
hangs.
"""

from __future__ import annotations

import argparse
import functools
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.faults.test_elastic_hosts import run as run_nodes
from tests.faults.test_elastic_state import PROGRAM, outcomes, run, undisturbed
from tests.faults.trains_in_a_loop import EPOCHS, STEPS

from stratagem.core import exits

SAID = {
    "nobody is left who holds the state": "all workers were hit",
    "all who hold the state leave": "all were told to leave",
    "the first worker was lost before its program had come to its end": "the chief was hit when the others had ended",
}


def faults_of(generator: random.Random, workers: int, *, leave: bool) -> list[str]:
    """Return faults at random points."""
    points = [*range(1, EPOCHS * STEPS + 1), *(f"mid{i}" for i in range(1, EPOCHS * STEPS + 1))]
    points += [f"epoch{i}" for i in range(1, EPOCHS + 1)]
    chosen = generator.sample(points, generator.randint(1, 3))
    signals = ["SIGKILL", "SIGKILL", "SIGKILL", "SIGSTOP", *(["SIGTERM"] * 4 if leave else [])]
    return [f"{generator.randrange(workers)}:{point}:{generator.choice(signals)}" for point in chosen]


@functools.cache
def undisturbed_on_hosts(workers: int) -> dict[str, Any]:
    """Return what workers of two hosts have at the end; more than two add in another order than on one."""
    with tempfile.TemporaryDirectory() as folder:
        done = on_hosts(Path(folder), ["--workers", str(workers // 2), "--spares", "1"])
        assert done.returncode == 0, done.stdout
        return outcomes(Path(folder))[0]


def on_hosts(folder: Path, options: list[str], *faults: str) -> subprocess.CompletedProcess[str]:
    """Run the program on two hosts; the exit code is the greater one, the output that of both."""
    ended = run_nodes(options, PROGRAM, str(folder), *faults)
    return subprocess.CompletedProcess([], max(code for code, _ in ended), "".join(said for _, said in ended), "")


def failure_of(code: int, said: str, causes: Mapping[str, str]) -> str | None:
    """Return how a trial ended that has failed; None where it has not. Nobody says why: then it prints what was said.

    Args:
        code: The exit code.
        said: The output.
        causes: What may be said where all ends with 42 or 43, and what that means.
    """
    found = [outcome for text, outcome in causes.items() if text in said]
    if found and code in (exits.PREEMPTED, exits.PEER_LOST):
        return found[0]
    if code:
        print(said[-6000:])
        return f"exit code {code}"
    return None


def outcome_of(folder: Path, workers: int, faults: list[str], *, elastic: bool, hosts: bool) -> str:
    """Run a trial; return how it ended.

    Args:
        folder: An empty folder.
        workers: Their number at the start.
        faults: What happens to them.
        elastic: Whether fewer continue; else spares take the places.
        hosts: Whether they are on two hosts.
    """
    each = workers // 2 if hosts else workers
    options = ["--elastic", f"1:{workers}"] if elastic else ["--workers", str(each), "--spares", str(len(faults))]
    plain = ["plain"] if elastic else []
    try:
        done = (on_hosts if hosts else run)(folder, options, *plain, *faults)
    except subprocess.TimeoutExpired:
        return "hangs"
    if failed := failure_of(done.returncode, done.stdout + done.stderr, SAID):
        return failed
    if elastic:
        expected = undisturbed(1, "plain")
    else:
        expected = undisturbed_on_hosts(workers) if hosts else undisturbed(workers)
    found = outcomes(folder)
    for each in found:
        if elastic:
            same = all(each[name] == expected[name] for name in ("seen", "tested")) and all(
                np.allclose(own, other, rtol=1e-4, atol=1e-5)
                for own, other in zip(each["values"], expected["values"], strict=True)
            )
        else:
            same = all(each[name] == expected[name] for name in ("weights", "slots", "history", "seen", "tested"))
        if not same:
            return "other numbers"
    return "as undisturbed" if found else "no worker has come to the end"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hosts", action="store_true", help="on two hosts")
    parser.add_argument("--leave", action="store_true", help="half of the faults tell a worker to leave")
    options = parser.parse_args()
    generator, counts = random.Random(options.seed), Counter[str]()
    for trial in range(options.trials):
        workers, elastic = generator.choice([2, 4] if options.hosts else [2, 3]), generator.random() < 0.5
        faults, began = faults_of(generator, workers, leave=options.leave), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = outcome_of(Path(folder), workers, faults, elastic=elastic, hosts=options.hosts)
        counts[outcome] += 1
        kind = "elastic" if elastic else "spares"
        print(
            f"{trial + 1}: {workers} workers, {kind}, {' '.join(faults)}: {outcome}, {time.monotonic() - began:.0f} s",
            flush=True,
        )
    print(dict(counts))


if __name__ == "__main__":
    main()
