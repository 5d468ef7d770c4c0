"""What is trained on GPUs, in which size, on which rows. NumPy is all it needs: PyTorch's environment reads it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SEED = 1

LEARNING_RATE = 1e-3

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Size:
    """How large a network and its batches are.

    Args:
        rows: Rows of each device in every step.
        steps: Steps of a turn.
        length: Pixels of an edge of an image, or tokens of a text.
        classes: Classes, or words of the vocabulary.
        width: Width of a transformer.
        blocks: Its blocks.
        heads: Its heads.
    """

    rows: int
    steps: int
    length: int
    classes: int
    width: int = 0
    blocks: int = 0
    heads: int = 1


@dataclass(frozen=True)
class Workload:
    """One network, and how it is trained.

    Args:
        title: What it is, with the names of a size's numbers in braces.
        unit: What is counted, in the plural.
        size: On a GPU.
        rehearsal: On a CPU, where only the program is tried.
        draw: Draws a batch of so many rows: the inputs as `x`, the targets as `y`.
    """

    title: str
    unit: str
    size: Size
    rehearsal: Size
    draw: Callable[[np.random.Generator, Size, int], Arrays]

    def size_on(self, place: str, rows: int | None = None) -> Size:
        """Return its size on "gpu" or "cpu", perhaps with other rows."""
        size = self.size if place == "gpu" else self.rehearsal
        return Size(**{**vars(size), "rows": rows or size.rows})

    def title_of(self, size: Size) -> str:
        """Return what it is in a size.

        Example:
            >>> WORKLOADS["resnet50"].title_of(WORKLOADS["resnet50"].size)
            'ResNet-50, 224 px, 128 rows, mixed bfloat16, SGD with momentum'
        """
        return self.title.format(**vars(size))

    def units_of(self, size: Size) -> int:
        """Return how many units a row has: one image, or the tokens of a text."""
        return size.length if self.unit == "tokens" else 1


def _pictures(rng: np.random.Generator, size: Size, rows: int) -> Arrays:
    shape = (rows, size.length, size.length, 3)
    return {"x": rng.integers(0, 256, shape).astype(np.uint8), "y": rng.integers(0, size.classes, rows)}


def _digits(rng: np.random.Generator, size: Size, rows: int) -> Arrays:
    x = rng.random((rows, size.length, size.length), np.float32)
    return {"x": x, "y": rng.integers(0, size.classes, rows)}


def _next_words(rng: np.random.Generator, size: Size, rows: int) -> Arrays:
    words = rng.integers(0, size.classes, (rows, size.length + 1)).astype(np.int32)
    return {"x": words[:, :-1], "y": words[:, 1:]}


WORKLOADS = {
    "resnet50": Workload(
        "ResNet-50, {length} px, {rows} rows, mixed bfloat16, SGD with momentum",
        "images",
        Size(rows=128, steps=40, length=224, classes=1000),
        Size(rows=2, steps=1, length=32, classes=10),
        _pictures,
    ),
    "gpt2": Workload(
        "GPT-2, {blocks} blocks, {width} wide, {length} tokens, {rows} rows, mixed bfloat16, AdamW",
        "tokens",
        Size(rows=8, steps=30, length=1024, classes=50_257, width=768, blocks=12, heads=12),
        Size(rows=2, steps=2, length=16, classes=100, width=64, blocks=2, heads=4),
        _next_words,
    ),
    "mnist": Workload(
        "MNIST network of the examples, {rows} rows, float32, SGD",
        "images",
        Size(rows=64, steps=500, length=28, classes=10),
        Size(rows=8, steps=4, length=28, classes=10),
        _digits,
    ),
}


def drawn(workload: Workload, size: Size) -> Arrays:
    """Return one batch of a device, the same wherever it is drawn."""
    return workload.draw(np.random.default_rng(SEED), size, size.rows)


def repeated(rows: np.ndarray, number: int) -> np.ndarray:
    """Return so many rows: those of a batch again and again."""
    return np.resize(rows, (number, *rows.shape[1:]))
