"""The tutorial "Multi-worker training with Keras" as it is written: two processes, each with its own TF_CONFIG."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from stratagem.core import environment
from stratagem.data import Dataset
from stratagem.launch.local import bound_to
from stratagem.launch.machine import free_ports, this_machine
from stratagem.launch.output import Lines
from stratagem.launch.plan import divide_cores

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).parents[2] / "examples" / "multi_worker.py"
SEEDED = Path(__file__).parents[1] / "seeded.py"
SEED = 1


def start_by_hand(index: int, addresses: list[str], log: Path) -> subprocess.Popen[bytes]:
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    variables = {**os.environ, environment.TF_CONFIG: json.dumps(config), environment.JAX_PLATFORMS: "cpu"}
    cores = divide_cores(this_machine(os.environ).cores, len(addresses))[index]
    threads = dict.fromkeys(environment.THREAD_COUNTS, str(len(cores) or 1))
    with log.open("wb") as output, bound_to(cores):  # half the time of two processes that fight for the same cores
        return subprocess.Popen(
            [sys.executable, str(SEEDED), str(SEED), str(PROGRAM)],
            env={**variables, **threads},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def epochs_in(log: Path) -> list[tuple[float, float]]:
    """Return (accuracy, loss) of each epoch, as the terminal would show them at the end."""
    bars = [re.search(r"accuracy: (\d\.\d+) - loss: (\d+\.\d+)", line) for line in Lines().feed(log.read_bytes())]
    return [(float(bar[1]), float(bar[2])) for bar in bars if bar is not None][:3]


def epochs_of_plain_keras(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Return (accuracy, loss) of each epoch of the same program on one device, without a strategy."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    digits, multi_worker = map(importlib.import_module, ("digits", "multi_worker"))
    keras.utils.set_random_seed(SEED)
    train, _ = digits.load(os.environ.get(environment.DATA))
    batches = iter(Dataset.from_tensor_slices(train).shuffle(60000).repeat().batch(128))
    model = multi_worker.make_model()
    history = model.fit((batch for batch in batches), epochs=3, steps_per_epoch=70, shuffle=False, verbose=0).history
    return list(zip(history["accuracy"], history["loss"], strict=True))


def test_both_workers_print_the_curve_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs of 70 steps, 64 rows for each worker, SGD at 0.001: the numbers of one device, on both workers.

    The tutorials print 2.28/0.19, 2.21/0.42 and 2.13/0.54; over twelve starts plain Keras ends at losses from 2.05 to
    2.20 on MNIST and from 2.06 to 2.21 on the digits of scikit-learn.
    """
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    logs = [tmp_path / "job_0.log", tmp_path / "job_1.log"]
    workers = [start_by_hand(index, addresses, log) for index, log in enumerate(logs)]
    try:
        for worker in workers:
            worker.wait()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    chief, other = (log.read_text() for log in logs)

    assert [worker.returncode for worker in workers] == [0, 0], chief + other
    assert f"Started server with target: grpc://{addresses[0]}" in chief
    assert f"Started server with target: grpc://{addresses[1]}" in other
    epochs = epochs_in(logs[0])
    assert len(epochs) == 3
    assert epochs_in(logs[1]) == epochs
    np.testing.assert_allclose(epochs, epochs_of_plain_keras(monkeypatch), atol=1.5e-4)  # four digits are printed
    losses = [loss for _, loss in epochs]
    assert losses == sorted(losses, reverse=True)
    assert losses[2] < 2.2
    assert epochs[2][0] > 0.4
