"""Digests of the examples that a pass read: one number each, small enough to keep, equal for equal examples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Steps = Sequence[np.ndarray]
"""The digests of the rows of each batch."""

_BYTES = 8
"""The chance that two of a million examples have the same digest is 1 in 30 million."""


def row_digests(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return a number for the content of each row.

    Args:
        columns: The arrays of a batch (at least one), of a common first axis. Text counts by its characters, whatever
            the width of the array.

    Returns:
        Vector of uint64.

    Example:
        >>> x, y = np.array([[1, 2], [1, 2], [3, 4]]), np.array(["a", "a", "a"])
        >>> digests = row_digests([x, y])
        >>> digests[0] == digests[1], digests[0] == digests[2]
        (np.True_, np.False_)
    """
    contents = zip(*(_contents(column) for column in columns), strict=True)
    hashes = (hashlib.blake2b(b"".join(row), digest_size=_BYTES).digest() for row in contents)
    return np.fromiter((int.from_bytes(digest, "little") for digest in hashes), np.uint64)


def _contents(column: np.ndarray) -> list[bytes]:
    if column.dtype.kind in "OSUT":  # an object's bytes are its address, those of text depend on the longest text
        return [repr(row.tolist()).encode() for row in np.asarray(column, object)[..., np.newaxis]]
    return [row.tobytes() for row in np.ascontiguousarray(column)]


@dataclass(frozen=True)
class Difference:
    """Difference between two passes.

    Args:
        kind: "length": there are more or fewer examples. "order": the same examples stand at other places.
            "content": there are other examples.
        step: Number of the first batch that differs.
        row: The first row of it that differs.
        rows: How many rows differ where both have some.
    """

    kind: Literal["length", "order", "content"]
    step: int
    row: int
    rows: int


def difference(expected: Steps, found: Steps, *, complete: bool = True) -> Difference | None:
    """Compare two passes, batch by batch.

    Args:
        expected: One pass.
        found: Another.
        complete: Whether the passes were read to their end. Otherwise the order is said to differ where half of the
            rows that differ stand elsewhere in the other pass.

    Example:
        >>> difference([np.array([1, 2]), np.array([3])], [np.array([1, 3]), np.array([2])])
        Difference(kind='order', step=0, row=1, rows=2)
        >>> difference([np.array([1, 2])], [np.array([1, 4])])
        Difference(kind='content', step=0, row=1, rows=1)
    """
    places = [
        (step, row)
        for step, (one, other) in enumerate(zip(expected, found, strict=False))
        for row in _differing(one, other)
    ]
    longer = len(expected) != len(found)
    if not places and not longer:
        return None
    first = places[0] if places else (min(len(expected), len(found)), 0)
    if sum(map(len, expected)) != sum(map(len, found)):
        return Difference("length", *first, len(places))
    left, right = (np.concatenate([np.empty(0, np.uint64), *steps]) for steps in (expected, found))
    _, moved = twice_and_never(left, right)
    same = moved == 0 if complete else 2 * moved <= len(places)
    return Difference("order" if same else "content", *first, len(places))


def _differing(one: np.ndarray, other: np.ndarray) -> list[int]:
    both = min(len(one), len(other))
    rows = np.flatnonzero(one[:both] != other[:both]).tolist()
    return rows + list(range(both, max(len(one), len(other))))


def twice_and_never(expected: np.ndarray, found: np.ndarray) -> tuple[int, int]:
    """Return how many examples were found more often than expected, and how many less often.

    Args:
        expected: Digests of the examples.
        found: Digests of those that were read.

    Example:
        >>> twice_and_never(np.array([1, 2, 3]), np.array([1, 1, 1, 2]))
        (2, 1)
    """
    digests, which = np.unique(np.concatenate([expected, found]), return_inverse=True)
    often = np.bincount(which[len(expected) :], minlength=len(digests))
    excess = often - np.bincount(which[: len(expected)], minlength=len(digests))
    return int(excess[excess > 0].sum()), int(-excess[excess < 0].sum())
