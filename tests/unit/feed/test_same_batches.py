"""Workers that read whole batches compare the first of each pass."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.core.errors import PeerError
from stratagem.feed.whole_batches import check_alike


class Workers:
    """As many workers as there are batches, each in a thread."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.told: dict[str, dict[int, Any]] = {}
        self._barrier = threading.Barrier(count, timeout=30)

    def from_all(self, worker: int) -> Callable[[str, Any], list[Any]]:
        def told(name: str, value: Any) -> list[Any]:
            self.told.setdefault(name, {})[worker] = json.loads(json.dumps(value))
            self._barrier.wait()
            return [self.told[name][other] for other in range(self.count)]

        return told


def compare(*batches: Any) -> list[str]:
    """Return what each worker is told, of its batch; nothing where all is well."""
    workers, said = Workers(len(batches)), [""] * len(batches)

    def run(worker: int) -> None:
        strategy: Any = type("Worker", (), {"from_all": staticmethod(workers.from_all(worker))})
        try:
            check_alike(strategy, batches[worker], "Write a seed.")
        except PeerError as error:
            said[worker] = str(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


ROWS = np.random.default_rng(0).normal(size=(6, 4, 3)).astype("float32")
LABELS = np.arange(6)


def test_equal_batches() -> None:
    assert compare((ROWS, LABELS), (ROWS.copy(), LABELS), (ROWS[::1], LABELS)) == ["", "", ""]


def test_the_last_bits_of_floats_may_differ() -> None:
    assert compare((ROWS, LABELS), (ROWS * np.float32(1 + 1e-6), LABELS)) == ["", ""]


@pytest.mark.parametrize(
    "other",
    [
        (ROWS[::-1], LABELS[::-1]),
        (ROWS, LABELS[::-1]),
        (np.concatenate([ROWS[1:2], ROWS[:1], ROWS[2:]]), LABELS),
        (ROWS[:5], LABELS[:5]),
        (ROWS[:, ::-1], LABELS),
        (ROWS + 0.1, LABELS),
        {"x": ROWS},
    ],
    ids=["order", "labels", "two rows", "fewer rows", "flipped images", "brighter images", "structure"],
)
def test_different_batches_are_named(other: Any) -> None:
    said = compare((ROWS, LABELS), other, (ROWS, LABELS))
    assert len(set(said)) == 1
    assert "Workers that read the same batch: workers 0, 2; worker 1." in said[0]
    assert said[0].endswith("Write a seed.")


def test_arrays_of_other_kinds() -> None:
    narrow = np.asarray(ROWS, jnp.bfloat16)
    words, others = np.array(["a", "b"]), np.array(["b", "a"])
    assert compare((narrow, words), (narrow, words.astype(object))) == ["", ""]
    assert "worker 0; worker 1" in compare((narrow, words), (narrow, others))[0]
    assert "worker 0; worker 1" in compare((narrow,), (narrow[::-1],))[0]
