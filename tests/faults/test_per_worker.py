"""`ElasticOptions(batch="per_worker")`: batches have more or fewer rows with more or fewer workers, each row once."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.test_elastic import variables
from tests.faults.trains_per_worker import EPOCHS, NUMBER, RATE, ROWS, STEPS, WORKERS, data, made, order

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_per_worker.py")


def run(folder: Path, kind: str, *faults: str) -> list[dict[str, Any]]:
    """Run the program with three workers and their faults; return what each has that came to the end."""
    launch = ["-m", "stratagem", "run", "--elastic", f"1:{WORKERS}", str(PROGRAM), str(folder), kind, *faults]
    done = subprocess.run(
        [sys.executable, *launch], capture_output=True, text=True, check=False, env=variables(), timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(folder.glob("did *"))) == len(faults)
    found = [json.loads(file.read_text()) for file in folder.glob("process-*.json")]
    assert len({json.dumps(each["sizes"]) for each in found}) == 1  # also of workers that came later
    return found


def cut(numbers: list[int], sizes: list[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield the rows of each step, given how many workers it had."""
    for _, workers in sizes:
        batch, numbers = numbers[: ROWS * workers], numbers[ROWS * workers :]
        yield batch
    assert not numbers, "the pass has more rows"


def of_one_process(kind: str, sizes: list[tuple[int, int]]) -> tuple[Any, list[float]]:
    """Train with plain Keras on the batches that so many workers make; return the model, and the loss of each epoch."""
    x, y = data()
    model, losses = made(), []
    passes, repeated = order(), iter(order().repeat())
    for epoch in range(EPOCHS):
        own = [(number, workers) for number, workers in sizes if number == epoch]
        if kind == "repeats":
            numbers = [int(next(repeated)) for _ in range(sum(ROWS * workers for _, workers in own))]
        else:
            numbers = list(range(NUMBER)) if kind == "arrays" else [int(number) for number in passes]
        total = 0.0
        for (_, workers), batch in zip(own, cut(numbers, own), strict=True):
            model.optimizer.learning_rate = RATE * workers / WORKERS
            model.reset_metrics()  # before 3.15 `train_on_batch` does not
            total += float(model.train_on_batch(x[batch], y[batch])) * len(batch)
        losses.append(total / len(numbers))
    return model, losses


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        ("fit", ["1:4:SIGKILL"]),
        ("fit", ["0:3:SIGKILL", "2:3:SIGKILL"]),
        ("fit", [f"0:{STEPS}:SIGKILL"]),
        ("arrays", ["2:6:SIGSTOP", f"0:{STEPS + 2}:SIGKILL"]),
        ("repeats", ["1:4:SIGKILL"]),
    ],
    ids=str,
)
def test_fit_has_the_numbers_of_batches_of_these_sizes(tmp_path: Path, kind: str, faults: list[str]) -> None:
    found = run(tmp_path, kind, *faults)
    sizes = [tuple(each) for each in found[0]["sizes"]]
    assert sizes[0] == (0, WORKERS)
    assert any(workers < WORKERS for _, workers in sizes)
    steps = [sum(1 for number, _ in sizes if number == epoch) for epoch in range(EPOCHS)]
    model, losses = of_one_process(kind, sizes)
    for each in found:
        assert each["announced"] == steps
        np.testing.assert_allclose(each["history"]["loss"], losses, rtol=1e-5)
        for own, of_one in zip(each["weights"], model.weights, strict=True):
            np.testing.assert_allclose(own, np.asarray(of_one), rtol=1e-4, atol=1e-5)


def test_a_loop_reads_each_row_once_an_epoch(tmp_path: Path) -> None:
    found = run(tmp_path, "loop", "1:3:SIGKILL", f"0:{STEPS + 3}:SIGKILL")
    for each in found:
        assert each["seen"] == [EPOCHS] * NUMBER
    for _, pairs in itertools.groupby(found[0]["sizes"], key=lambda pair: pair[0]):
        rows = [ROWS * workers for _, workers in pairs]
        assert sum(rows[:-1]) < NUMBER <= sum(rows)
