"""The article of A5: one residual network, four strategies, only the strategy's line changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import translated
from tests.tutorials.conftest import run_alone, run_by_hand

from stratagem.launch.machine import free_ports

pytestmark = pytest.mark.multiprocess

PROGRAMS = Path(__file__).parent / "strategies"
SMALLER = {
    "input_shape = (224, 224, 3)": "input_shape = (32, 32, 3)",
    "widths = (64, 128, 256, 512)": "widths = (8, 16)",
    "Conv2D(64,": "Conv2D(8,",
    "epochs=10": "epochs=4",
}


def losses_in(output: str) -> tuple[list[float], list[float]]:
    """Return the losses, and the validation losses, of the epochs."""
    last = re.findall(r" loss: (\S+) - val_accuracy: \S+ - val_loss: (\d+\.\d+)", output)
    return [float(loss) for loss, _ in last], [float(val) for _, val in last]


@pytest.mark.parametrize("strategy", ["mirrored", "central_storage", "parameter_server"])
def test_one_process(strategy: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if strategy == "mirrored":
        request.getfixturevalue("as_users_do")
    program = translated.lay(PROGRAMS / f"{strategy}.py", tmp_path, SMALLER)
    output = run_alone(program, devices=2)

    losses, val_losses = losses_in(output)
    assert len(losses) == len(val_losses) == 4, output
    assert losses[-1] < losses[0]
    if strategy != "parameter_server":
        assert "2 replica(s)" in output


def test_two_workers(tmp_path: Path) -> None:
    ports = free_ports(2)
    changes = {f'"192.168.1.10{i}"': f'"127.0.0.1:{port}"' for i, port in enumerate(ports)}
    program = translated.lay(PROGRAMS / "multi_worker.py", tmp_path, {**SMALLER, **changes})
    chief, other = (log.decode() for log in run_by_hand(program, [{"WORKER": "0"}, {"WORKER": "1"}]))

    losses, val_losses = losses_in(chief)
    assert len(losses) == 4, chief
    assert losses[-1] < losses[0]
    assert losses_in(other) == (losses, val_losses)
