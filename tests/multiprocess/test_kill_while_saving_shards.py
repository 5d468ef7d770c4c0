"""A worker killed at any moment of a save in shards leaves a checkpoint that loads, with the values of one save.

The moments are the operations on files, and the notes between workers: a worker kills itself before or after the n-th.
More trials: `KERAS_BACKEND=jax python tests/multiprocess/test_kill_while_saving_shards.py --trials 50`.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import signal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.checkpoint.shard_files import load_whole
from stratagem.checkpoint.state_file import latest_checkpoint
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

SAVES = 4
MOMENTS = {0: 50, 1: 9}
"""Operations of a worker in so many saves, and a few more: no kill is a trial too."""


def counting_down(kill_at: int) -> None:
    """Let this process die at an operation on a file, or at a note to another worker."""
    from stratagem.cluster.agreement import Peers

    left = kill_at

    def dying(function: Any) -> Any:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            left -= 1
            return result

        return counted

    for owner, names in ((os, ["fsync"]), (Path, ["replace", "unlink"]), (Peers, ["post", "collect"])):
        for name in names:
            setattr(owner, name, dying(getattr(owner, name)))


def saves_until_killed(folder: str, victim: int, kill_at: int) -> tuple[int, list[str]]:
    """Go on from the newest checkpoint, and save some more, every second in the background."""
    import keras

    import stratagem
    from stratagem.checkpoint.shard_files import placed_like
    from stratagem.train import Checkpoint, CheckpointManager, CheckpointOptions

    strategy = stratagem.MultiWorkerMirroredStrategy(shard="parameters", shard_min_size=64)
    with strategy.scope():
        model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64), keras.layers.Dense(8)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(np.zeros((8, 16)), np.zeros((8, 8)), batch_size=8, verbose=0)
    manager = CheckpointManager(Checkpoint(model=model), folder, max_to_keep=2)
    manager.restore_or_initialize()
    variables = [*model.trainable_variables, *model.optimizer.variables[2:]]
    start = int(manager.checkpoint.save_counter)
    if strategy.worker_index == victim:
        counting_down(kill_at)
    for number in range(start + 1, start + 1 + SAVES):
        for variable in variables:
            value = np.full(variable.shape, number, "float32")
            variable.assign(placed_like(value, variable.value.sharding))
        manager.save(options=CheckpointOptions(enable_async=number % 2 == 0))
    manager.sync()
    return start + SAVES, sorted(os.listdir(folder))


def found_in(folder: Path) -> int:
    """Return the number of the newest checkpoint, once its values are seen to be of one save."""
    path = latest_checkpoint(folder)
    if path is None:
        assert not list(folder.glob("checkpoint"))
        return 0
    number = int(path.rpartition("-")[2])
    arrays = load_whole(path).arrays
    counted = {name for name in arrays if name.endswith(("save_counter", "iteration", "learning_rate", "seed"))}
    values = {float(value) for name in arrays.keys() - counted for value in np.unique(np.asarray(arrays[name]))}
    assert values == {float(number)}, f"{path} mixes the saves {sorted(values)}"
    return number


def kill_trials(folder: Path, trials: int, seed: int) -> tuple[list[int], int]:
    """Kill a worker at random moments, each time in a cluster that goes on from the checkpoint before.

    Returns:
        (the number of the newest checkpoint after each trial, in how many a worker was killed)
    """
    moments, found, kills = random.Random(seed), [0], 0
    for trial in range(trials):
        victim = trial % 2
        kill_at = moments.randrange(MOMENTS[victim])
        results = run_workers(saves_until_killed, 2, args=[str(folder), victim, kill_at], check=False)
        killed = results[victim].returncode == -signal.SIGKILL
        assert killed or results[0].value is not None, results[0].output
        kills += killed
        found.append(found_in(folder))
        assert found[-1] >= found[-2], "a checkpoint that was there is gone"
    return found[1:], kills


@pytest.mark.parametrize("seed", range(2))
def test_newest_checkpoint_loads_after_a_kill(tmp_path: Path, seed: int) -> None:
    found, kills = kill_trials(tmp_path, trials=3, seed=seed)
    assert kills >= 2
    chief, other = run_workers(saves_until_killed, 2, args=[str(tmp_path), 0, -1])
    assert chief.value == other.value
    number, listed = chief.value
    assert number == found[-1] + SAVES == found_in(tmp_path)
    kept = [name for name in listed if name.startswith((f"ckpt-{number}.", f"ckpt-{number - 1}."))]
    assert len(kept) == 2 * 4  # file, index and two of shards
    assert sorted(set(listed) - set(kept)) == ["checkpoint"]  # of those that were cut short nothing is left


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, kills = kill_trials(Path(folder), given.trials, given.seed)
    print(f"{kills} workers killed in {len(found)} trials; each left a checkpoint that loads: {found}")


if __name__ == "__main__":
    _main()
