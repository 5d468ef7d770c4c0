"""The tutorial "Multi-worker training with Keras" (A1, A2): two processes, each with its own TF_CONFIG."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from tests import translated
from tests.tutorials.conftest import SEED, run_alone, run_by_hand, two_workers

from stratagem.launch.output import Lines

pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("as_users_do")]

TUTORIAL = Path(__file__).parent / "multi_worker_with_keras"


def epochs_in(log: bytes) -> list[tuple[float, float]]:
    """Return (accuracy, loss) of each epoch, as the terminal would show them at the end."""
    bars = [re.search(r"accuracy: (\d\.\d+) - loss: (\d+\.\d+)", line) for line in Lines().feed(log)]
    return [(float(bar[1]), float(bar[2])) for bar in bars if bar is not None]


def epochs_of_plain_keras(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Return (accuracy, loss) of each epoch of the same program on one device, without a strategy."""
    translated.data_at_hand(monkeypatch.setattr)
    monkeypatch.syspath_prepend(str(folder))
    mnist_setup = importlib.import_module("mnist_setup")
    keras.utils.set_random_seed(SEED)
    batches = iter(mnist_setup.mnist_dataset(128))
    model = mnist_setup.build_and_compile_cnn_model()
    history = model.fit((batch for batch in batches), epochs=3, steps_per_epoch=70, shuffle=False, verbose=0).history
    return list(zip(history["accuracy"], history["loss"], strict=True))


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs of 70 steps, 64 rows for each worker, SGD at 0.001: the numbers of one device, on both workers.

    The tutorials print 2.28/0.19, 2.21/0.42 and 2.13/0.54; over twelve starts plain Keras ends at losses from 2.05 to
    2.20 on MNIST and from 2.06 to 2.21 on the digits inside Stratagem.
    """
    addresses, variables = two_workers()
    program = translated.lay(TUTORIAL / "main.py", tmp_path)
    chief, other = run_by_hand(program, variables)

    assert f"Started server with target: grpc://{addresses[0]}" in chief.decode()
    assert f"Started server with target: grpc://{addresses[1]}" in other.decode()
    epochs = epochs_in(chief)
    assert len(epochs) == 5
    assert epochs_in(other) == epochs
    plain = epochs_of_plain_keras(tmp_path, monkeypatch)
    np.testing.assert_allclose(epochs[:3], plain, atol=1.5e-4)  # four digits are printed
    losses = [loss for _, loss in epochs]
    assert losses == sorted(losses, reverse=True)  # also after the checkpoint was restored
    assert losses[2] < 2.2
    assert epochs[2][0] > 0.4
    # One model and one checkpoint; what the other worker wrote it deleted.
    assert (tmp_path / "keras-model").exists()
    for log in (chief, other):
        assert f"restores {tmp_path}/ckpt/ckpt-1" in log.decode()
    assert not list(tmp_path.rglob("workertemp_1/*"))

    # "single_worker.py", next, loads that model.
    steps = {"steps_per_epoch=70": "steps_per_epoch=35"}
    program = translated.lay(TUTORIAL / "single_worker.py", tmp_path, steps)
    output = run_alone(program)
    single = epochs_in(output.encode())
    assert len(single) == 3 + 2 + 3 + 3
    (history,) = re.findall(r"history (\[.*\])", output)
    assert history == str([f"{loss:.4f}" for _, loss in single[:3]])
    assert single[3][1] < epochs[2][1]  # the loaded model goes on where two workers ended
    assert single[4][1] < single[3][1]
    for three in (single[:3], single[5:8], single[8:]):
        assert 2.4 > three[0][1] > three[1][1] > three[2][1]
    assert "replicas 1" in output
    assert "left behind []" in output
