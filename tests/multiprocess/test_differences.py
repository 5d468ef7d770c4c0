"""Workers that differ are told so before the second step, and those whose weights differ by the next epoch."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

X = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def _worker() -> int:
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def _strategy(*, ring: bool = False) -> Any:
    import stratagem

    by_gloo = stratagem.CommunicationImplementation.RING
    options = stratagem.CommunicationOptions(implementation=by_gloo) if ring else None
    return stratagem.MultiWorkerMirroredStrategy(communication_options=options)


def _found(strategy: Any, differs: str, own: Any) -> tuple[int, str]:
    """Train; return after how many steps the workers were told, and what."""
    import keras

    from stratagem.core.errors import PeerError
    from stratagem.data import Dataset

    class Net(keras.Sequential):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)  # the settings do not show what follows
            if differs == "branch":
                return loss + keras.ops.mean(self.layers[-1].kernel ** 2) if own else loss
            return loss * own if differs == "constant" else loss

    def dataset(differing: str) -> Any:
        rows = own if differs == f"{differing}length" else 32
        doubled = own if differs == f"{differing}function" else False
        data = Dataset.from_tensor_slices((X[:rows], Y[:rows]))
        data = data.map((lambda x, y: (2 * x, y)) if doubled else (lambda x, y: (x, y)))
        return data.repeat().batch(own if differs == f"{differing}batch" else 8)

    with strategy.scope():
        rate = own if differs == "layer" else 0.2
        model = Net([keras.Input((3,)), keras.layers.Dropout(rate), keras.layers.Dense(1)])
        clip = own if differs == "optimizer" else None
        model.compile(keras.optimizers.SGD(0.01, clipnorm=clip), own if differs == "loss" else "mse")
    try:
        model.fit(
            dataset(""),
            steps_per_epoch=2,
            epochs=2,
            validation_data=dataset("validation "),
            validation_steps=1,
            verbose=0,
        )
    except PeerError as error:
        return int(model.optimizer.iterations), str(error)
    return int(model.optimizer.iterations), ""


DIFFERENCES: dict[str, tuple[Any, Any, str]] = {
    "constant": (
        0.5,
        0.25,
        r"first equation of train_step of Net that differs is .*0\.25\) at test_differences\.py:\d+",
    ),
    "branch": (False, True, "first equation of train_step of Net that differs"),
    "layer": (0.2, 0.6, r"layer 1, Dropout, rate is .*0\.6"),
    "optimizer": (None, 0.01, r"optimizer SGD, clipnorm is .*0\.01"),
    "loss": ("mse", "mae", "compile, loss is .*mae"),
    "batch": (8, 16, "argument x, step 3, Batched is .*size=16"),
    "length": (32, 24, "argument x, step 0, Indexed is .*24 elements"),
    "function": (False, True, "argument x, step 1, Map is "),
    "validation batch": (8, 4, "argument validation_data, step 3, Batched is .*size=4"),
    "validation length": (32, 8, "argument validation_data, step 0, Indexed is .*8 elements"),
    "nothing": (0, 0, ""),  # last: a worker that has agreed on a program does not stop for the others
}
"""What the workers have, and what they are told."""


def all_differences() -> dict[str, tuple[int, str]]:
    strategy = _strategy()
    return {name: _found(strategy, name, given[_worker()]) for name, given in DIFFERENCES.items()}


def test_fit_tells_workers_that_differ_before_they_train() -> None:
    first, second = (result.value for result in run_workers(all_differences, 2))
    assert first == second
    assert first.pop("nothing") == (4, "")
    for name, (steps, said) in first.items():
        assert steps == 0, name
        assert "worker 1 (host " in said
        _assert_matches(DIFFERENCES[name][2], said, name)


def _assert_matches(pattern: str, said: str, name: str) -> None:
    assert re.search(pattern, said), f"{name}: {said}"


def loops_that_differ(ring: bool) -> list[str]:
    import keras

    import stratagem
    from stratagem.core.errors import PeerError
    from stratagem.data import Dataset

    strategy = _strategy(ring=ring)
    with strategy.scope():
        weight = keras.Variable(np.ones(3, np.float32))
    rate = 0.5 if _worker() else 0.25

    def own(index: Any) -> Any:
        """Return what each worker brings on purpose: an argument, of any value."""
        return strategy.experimental_distribute_values_from_function(lambda context: np.float32(_worker()))

    def step(scale: Any, given: Any) -> Any:
        total = stratagem.get_replica_context().all_reduce("sum", given)
        weight.assign_add(scale * total * np.ones(3, np.float32))
        return total

    def told(call: Any) -> str:
        try:
            call()
        except PeerError as error:
            return str(error)
        return ""

    batch = 8 * (1 + _worker())
    return [
        told(lambda: strategy.run(lambda given: step(1.0, given), args=(own(0),))),
        told(lambda: strategy.run(lambda given: step(rate, given), args=(own(0),))),
        told(stratagem.function(lambda: strategy.run(lambda given: step(rate, given), args=(own(0),)))),
        told(lambda: strategy.experimental_distribute_dataset(Dataset.from_tensor_slices(X).batch(batch))),
        repr(np.asarray(weight).tolist()),
    ]


@pytest.mark.parametrize("ring", [False, True])
def test_loops_tell_workers_that_differ(ring: bool) -> None:
    first, second = (result.value for result in run_workers(loops_that_differ, 2, args=[ring]))
    assert first == second
    alike, run, function, dataset, weight = first
    assert alike == ""
    for said in (run, function):
        _assert_matches(
            r"first equation of .* that differs is .*0\.25.* at test_differences\.py:\d+ \(.*step\)", said, "run"
        )
    _assert_matches("step 1, Batched is .*size=16", dataset, "dataset")
    assert weight == "[2.0, 2.0, 2.0]"  # of the only step that ran: 1 + 1.0 * (0 + 1)


def one_changes_later() -> None:
    import keras

    scale = [1.0]

    class Net(keras.Sequential):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return super().compute_loss(*args, **kwargs) * scale[0]

    with _strategy().scope():
        model = Net([keras.Input((3,)), keras.layers.Dense(1)])
        for _ in range(2):
            model.compile("sgd", "mse")
            model.fit(X, Y, batch_size=16, verbose=0)
            scale[0] -= 0.5 * _worker()


def test_a_program_that_changes_later_on_one_worker_is_found_at_once() -> None:
    """The other worker knows its program, and waits for nobody before it runs it again."""
    results = run_workers(one_changes_later, 2, check=False)
    assert all(result.returncode != 0 for result in results)
    found = (
        r"On worker 1 \(host .*\), the first equation of train_step of Net that differs is .*0\.5\) at test_differences"
    )
    _assert_matches(found, results[1].output, "later")


def _flip_one_bit(variable: Any) -> None:
    """Change the last bit of the last number of a variable, on this worker alone."""
    import jax

    value = np.array(variable.value.addressable_data(0))
    value.view(np.uint32).reshape(-1)[-1] ^= 1
    parts = [jax.device_put(value, device) for device in variable.value.sharding.addressable_devices]
    variable.assign(jax.make_array_from_single_device_arrays(value.shape, variable.value.sharding, parts))


def a_bit_flips(when: str, folder: str) -> None:
    import keras

    import stratagem

    class Flip(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if _worker() == 1 and when != "checkpoint" and int(self.model.optimizer.iterations) == 2:
                _flip_one_bit(self.model.layers[0].kernel)

    with _strategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(), "mse")
    callbacks: list[Any] = [Flip()]
    if when == "backup":
        callbacks.append(stratagem.callbacks.BackupAndRestore(folder, save_freq=1))
    model.fit(X, Y, batch_size=16, epochs=9, verbose=0, callbacks=callbacks)
    checkpoint = stratagem.train.Checkpoint(model=model)
    checkpoint.save(os.path.join(folder, "whole"))
    if _worker() == 1:
        _flip_one_bit(model.layers[1].kernel)
    checkpoint.save(os.path.join(folder, "flipped"))


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ("epoch", "different values at the end of epoch 2:\n    trainable_variables/0/.*dense/kernel has checksum"),
        ("backup", "different values when a backup is made:\n    trainable_variables/0/.*dense/kernel has checksum"),
        ("checkpoint", "different values when a checkpoint is saved:\n    model/.*kernel has checksum"),
    ],
)
def test_a_flipped_bit_is_found_and_named(when: str, found: str, tmp_path: Path) -> None:
    results = run_workers(a_bit_flips, 2, args=[when, str(tmp_path)], check=False)
    assert all(result.returncode != 0 for result in results)
    _assert_matches(found, results[1].output, when)
    assert "on worker 0 (host " in results[1].output
    assert not list(tmp_path.glob("flipped*"))
