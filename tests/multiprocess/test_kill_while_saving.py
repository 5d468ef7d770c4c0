"""A process killed at any moment leaves a checkpoint that loads, with the values of one save.

More trials, or more bytes:
`KERAS_BACKEND=jax python tests/multiprocess/test_kill_while_saving.py --trials 200 --megabytes 100`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.cluster.compat import backends_started
from stratagem.train import Checkpoint, CheckpointManager, CheckpointOptions, latest_checkpoint

pytestmark = pytest.mark.multiprocess

VARIABLES = 20


@pytest.mark.parametrize("seed", range(4))
def test_newest_checkpoint_loads_after_a_kill(tmp_path: Path, seed: int) -> None:
    found = kill_trials(tmp_path, trials=5, megabytes=8.0, seed=seed, longest_life=0.3)
    assert len(found) == 5
    assert min(found) >= 1


def kill_trials(folder: Path, trials: int, megabytes: float, seed: int, longest_life: float) -> list[int]:
    """Kill a saving process at random moments, and load the newest checkpoint each time.

    Args:
        folder: Where they save.
        trials: How many processes are killed.
        megabytes: Size of the state.
        seed: What the moments are drawn from.
        longest_life: Longest life of a process after its first save, in seconds.

    Returns:
        The number of the checkpoint that was found after each trial.
    """
    moments, found, state = random.Random(seed), [], _state(megabytes)
    run = folder / "run"
    command = [sys.executable, __file__, "--nursery", str(run), "--megabytes", str(megabytes)]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as nursery:
        try:
            for _ in range(trials):
                _kill_one(nursery, moments.uniform(0, longest_life))
                found.append(_loaded(run, state))
                shutil.rmtree(run)
        finally:
            nursery.kill()  # a child of it that is alive sees that and ends
    return found


def _kill_one(nursery: subprocess.Popen[str], life: float) -> None:
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    print("next", file=nursery.stdin, flush=True)
    said = nursery.stdout.readline()
    assert said.startswith("ready "), f"the saving process did not come up: it said {said!r}"
    ended, _, _ = select.select([nursery.stdout], [], [], life)
    assert not ended, f"the saving process ended by itself: {nursery.stdout.readline()!r}"
    os.kill(int(said.removeprefix("ready ")), signal.SIGKILL)
    assert nursery.stdout.readline() == "ended\n"


def _loaded(run: Path, state: dict[str, Any]) -> int:
    """Load the newest checkpoint, make sure that it is one save, and return its number."""
    latest = latest_checkpoint(run)
    assert latest is not None, "no checkpoint is left"
    Checkpoint(**state).restore(latest).assert_consumed()
    number = int(latest.rpartition("-")[2])
    values = {float(value) for v in state.values() for value in (np.min(v.value), np.max(v.value))}
    assert values == {float(number)}, f"{latest} mixes the saves {sorted(values)}"
    return number


def _state(megabytes: float) -> dict[str, Any]:
    size = int(megabytes * 1e6 / 4 / VARIABLES)
    return {f"v{i}": keras.Variable(np.zeros(size, "float32"), trainable=False) for i in range(VARIABLES)}


def _nursery(folder: str, megabytes: float) -> None:
    """Fork a process that saves for each line of input: all is loaded already, and JAX has not started."""
    assert not backends_started(), "a process in which JAX runs must not fork"
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            _save_until_killed(folder, megabytes)
            os._exit(0)
        os.waitpid(child, 0)
        print("ended", flush=True)


def _save_until_killed(folder: str, megabytes: float) -> None:
    """Save without end, every second time in the background; say `ready` once the first is saved."""
    nursery, state = os.getppid(), _state(megabytes)
    manager = CheckpointManager(Checkpoint(**state), folder, max_to_keep=2)
    for number in itertools.count(1):
        if os.getppid() != nursery:
            return  # nobody is left to kill this process
        for variable in state.values():
            variable.assign(np.full(variable.shape, number, "float32"))
        manager.save(options=CheckpointOptions(enable_async=number % 2 == 0))
        if number == 1:
            print(f"ready {os.getpid()}", flush=True)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest-life", type=float, default=1.0, help="seconds after the first save")
    parser.add_argument("--folder", type=Path, default=Path("kill-trials"))
    parser.add_argument("--nursery", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.nursery:
        _nursery(given.nursery, given.megabytes)
    else:
        found = kill_trials(given.folder, given.trials, given.megabytes, given.seed, given.longest_life)
        print(f"{len(found)} processes killed; each left a checkpoint that loads, number {min(found)} to {max(found)}")


if __name__ == "__main__":
    _main()
