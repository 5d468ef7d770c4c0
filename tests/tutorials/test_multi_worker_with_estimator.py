"""The tutorial "Multi-worker training with Estimator" (A4), on four devices: an epoch is 234 steps."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import pytest
from tests import translated
from tests.tutorials.conftest import run_alone

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).parent / "multi_worker_with_estimator" / "estimator.py"


@pytest.mark.skipif(
    not translated.HAS_MNIST, reason="needs more rows than the digits inside Stratagem: set STRATAGEM_DATA"
)
def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixteenth of the batch and of the rows: 60,000 / (64 * 4) = 3,750 / (4 * 4) = 234 steps."""
    monkeypatch.setenv(translated.ROWS, "3750")
    translated.data_at_hand(monkeypatch.setattr)
    rows = len(keras.datasets.mnist.load_data()[0][0])
    steps = rows // 16

    program = translated.lay(PROGRAM, tmp_path, {"BATCH_SIZE = 64": "BATCH_SIZE = 4"})
    output = run_alone(program, devices=4)

    (devices,) = re.findall(r"Single-worker MultiWorkerMirroredStrategy with local_devices = \((.*?)\)", output)
    assert len(devices.split(", ")) == 4
    losses = {int(step): float(loss) for loss, step in re.findall(r"loss = (\d\.\d+), step = (\d+)", output)}
    assert list(losses) == list(range(0, steps, 100))
    assert 2.0 < losses[0] < 2.7
    assert re.findall(r"Saving checkpoints for (\d+) into (\S+)", output) == [
        (str(step), f"{tmp_path}/multiworker/model.ckpt.") for step in (0, steps)
    ]
    assert "Calling checkpoint listeners after saving checkpoint 0..." in output
    assert re.findall(r"Evaluation \[(\d+)/(\d+)\]", output)[-1] == ("100", "100") or rows < 3750
    (evaluated,) = re.findall(rf"Saving dict for global step {steps}: global_step = {steps}, loss = (\S+)", output)
    assert 2.0 < float(evaluated) < 2.4
    assert re.search(r"Loss for final step: \d\.\d+", output)
    assert re.search(rf"^\(\{{'loss': .*{evaluated}.*, 'global_step': .*{steps}.*\}}, \[\]\)$", output, re.MULTILINE)
