"""The network of shards.py, its first weights and its rows, alike for all who train it. NumPy alone."""

from __future__ import annotations

import numpy as np

LAYERS = 24
WIDTH = 1024
CLASSES = 10
ROWS = 16
"""Of a worker, in every step."""

LEARNING_RATE = 1e-6
EPSILON = 1e-8


def first_weights() -> list[np.ndarray]:
    """Return kernel [inputs, outputs] and bias [outputs] of each layer, by He: so signals keep their size."""
    rng = np.random.default_rng(1)
    found = []
    for outputs in [WIDTH] * LAYERS + [CLASSES]:
        deviation = np.float32((2 / WIDTH) ** 0.5)
        found += [rng.standard_normal((WIDTH, outputs), np.float32) * deviation, np.zeros(outputs, np.float32)]
    return found


def rows_of(number: int) -> dict[str, np.ndarray]:
    """Return `x` float32 [number, WIDTH] in 0..1 and `y` int64 [number]."""
    rng = np.random.default_rng(0)
    return {"x": rng.random((number, WIDTH), np.float32), "y": rng.integers(0, CLASSES, number)}
