"""`stratagem run --evaluator`: the example, as a person starts it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stratagem.train import Checkpoint, latest_checkpoint

pytestmark = pytest.mark.multiprocess

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "evaluator.py"


def test_every_checkpoint_of_two_workers_is_evaluated_beside_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--epochs", "3", "--steps", "12", "--checkpoints", tmp_path / "saved", "--log-dir", tmp_path / "log"]
    program = [TESTS / "seeded.py", 1, EXAMPLE, *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--evaluator", *map(str, program)],
        env={**os.environ, "STRATAGEM_DATA": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    pattern = r"\[evaluator 0\] .*End of evaluation: ckpt-(\d), iteration (\d+), accuracy = \S+, loss = (\S+)"
    evaluated = [(int(number), int(step), float(loss)) for number, step, loss in re.findall(pattern, done.stdout)]
    # One that came while another was evaluated may be left out, the last one never.
    assert evaluated[-1][:2] == (3, 36)
    assert all(step == 12 * number for number, step, _ in evaluated)
    losses = [loss for _, _, loss in evaluated]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(loss_of(tmp_path / "saved", monkeypatch), rel=1e-4)
    (events,) = (tmp_path / "log").iterdir()
    assert events.name.startswith("events.out.tfevents")


def loss_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Evaluate the newest checkpoint here, without a strategy."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    digits, multi_worker = map(importlib.import_module, ("digits", "multi_worker"))
    model = multi_worker.make_model()
    Checkpoint(model=model).restore(latest_checkpoint(folder)).expect_partial().assert_existing_objects_matched()
    _, test = digits.load()
    return model.evaluate(*test, verbose=0)[0]
