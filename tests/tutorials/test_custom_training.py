"""The tutorial "Custom training with tf.distribute.Strategy" (A3), on one device and on two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import translated
from tests.tutorials.conftest import run_alone

pytestmark = [pytest.mark.multiprocess, pytest.mark.usefixtures("as_users_do")]

PROGRAM = Path(__file__).parent / "custom_training" / "custom_training.py"
NUMBER = r"(\d+\.\d+)"


def test_the_tutorial(tmp_path: Path) -> None:
    """As the tutorial prints it: ten epochs, their fifth checkpoint restored to the digit, ten epochs of ten steps."""
    program = translated.lay(PROGRAM, tmp_path, {"BATCH_SIZE_PER_REPLICA = 64": "BATCH_SIZE_PER_REPLICA = 32"})
    output = run_alone(program, devices=2, variables={translated.ROWS: "704"})

    assert "Number of devices: 2" in output
    pattern = rf"^Epoch (\d+), Loss: {NUMBER}, Accuracy: {NUMBER}, Test Loss: {NUMBER}, Test Accuracy: (\S+)$"
    epochs = re.findall(pattern, output, re.MULTILINE)
    assert [int(epoch[0]) for epoch in epochs] == list(range(1, 11))
    losses = [float(epoch[1]) for epoch in epochs]
    accuracies = [float(epoch[2]) for epoch in epochs]
    assert losses[0] > 1.0 > 0.75 > losses[-1]
    assert accuracies[-1] > 70
    (restored,) = re.findall(r"Accuracy after restoring the saved model without strategy: (\S+)", output)
    assert restored == epochs[8][4]  # epoch 9 was the last that was saved
    assert sorted({file.name.split(".")[0] for file in (tmp_path / "training_checkpoints").glob("ckpt-*")}) == [
        f"ckpt-{n}" for n in range(1, 6)
    ]

    rest = re.findall(rf"^Epoch (\d+), Loss: {NUMBER}, Accuracy: (\S+)$", output, re.MULTILINE)
    assert [int(epoch[0]) for epoch in rest] == [10] * 10 + list(range(1, 11))  # the variable is stale, as there
    going_on = [float(epoch[1]) for epoch in rest]
    assert going_on[0] < losses[0]
    assert going_on[-1] < 0.7 * losses[-1]
