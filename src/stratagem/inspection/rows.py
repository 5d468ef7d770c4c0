"""Find the rows of a global batch that hold NaN or infinity, and the rows that make a step compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.feed.batch import GlobalBatch
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.replica.context import StrategyLike

_MOST_TRIALS: Final = 256
"""How often a step is run to find rows; a batch with a few faulty rows takes two times the bits of their number."""

_MOST_TRIED_ROWS: Final = 8
"""Rows of a batch, of which copies are tried in the place of all others."""

_PARTS: Final = ("x", "y", "sample_weight")


class Faulty(NamedTuple):
    """Rows that are at fault.

    Args:
        rows: Their places in the global batch, from 0.
        is_all: Whether these are all such rows; otherwise the search was ended early.
    """

    rows: list[int]
    is_all: bool


class RowsOfBatch:
    """The rows of a batch of one step that this worker holds.

    Args:
        mesh: Where the batch lies.
        batch: The batch.
    """

    def __init__(self, mesh: ReplicaMesh, batch: GlobalBatch) -> None:
        self._mesh, self.batch = mesh, batch
        paths, self._structure = jax.tree_util.tree_flatten_with_path(batch.data)
        self._names = [_name(path) for path, _ in paths]
        self.leaves = [_on_host(leaf) for _, leaf in paths]
        self._places = dict(self._numbered())

    def not_finite(self) -> dict[str, list[int]]:
        """Return the rows of this worker that hold NaN or infinity, by the name of the array, as "x['image']"."""
        found = {}
        for name, leaf in zip(self._names, self.leaves, strict=True):
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                is_faulty: np.ndarray = ~np.asarray(np.isfinite(leaf)).reshape(len(leaf), -1)
                of_rows = set(np.flatnonzero(is_faulty.any(axis=1)).tolist())
                found[name] = [row for row, place in self._places.items() if place in of_rows]
        return {name: rows for name, rows in found.items() if rows}

    def only(self, rows: Sequence[int], others: Sequence[np.ndarray]) -> GlobalBatch:
        """Return a batch with some of the rows, and with other rows in place of the rest.

        Args:
            rows: The rows that it has.
            others: Arrays like those of this batch.
        """
        places = [self._places[row] for row in rows if row in self._places]
        leaves = []
        for own, other in zip(self.leaves, others, strict=True):
            leaf = other.copy()
            leaf[places] = own[places]
            leaves.append(self._mesh.shard_blocks(leaf))
        return GlobalBatch(self._structure.unflatten(leaves), self.batch.split)

    def repeated(self, number: int) -> list[np.ndarray]:
        """Return arrays in which each replica has copies of one of its rows.

        Args:
            number: The number of the row in each replica's share.
        """
        block = self.batch.split.block
        indices = np.arange(len(self._mesh.local_replicas) * block)
        for place, replica in enumerate(self._mesh.local_replicas):
            share = max(1, self.batch.split.shares[replica])
            indices[place * block : (place + 1) * block] = place * block + number % share
        return [leaf[indices] for leaf in self.leaves]

    def plain(self) -> list[np.ndarray]:
        """Return arrays of halves, and of zeros where there are integers."""
        return [np.full_like(leaf, 0.5 if jnp.issubdtype(leaf.dtype, jnp.inexact) else 0) for leaf in self.leaves]

    def fits(self, other: RowsOfBatch) -> bool:
        """Whether another batch has arrays of the same shapes and the same shares."""
        shapes = [[(leaf.shape, leaf.dtype) for leaf in each.leaves] for each in (self, other)]
        return self.batch.split == other.batch.split and shapes[0] == shapes[1]

    def _numbered(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each of this worker's rows in the global batch, and its place in the arrays."""
        split = self.batch.split
        for place, replica in enumerate(self._mesh.local_replicas):
            for i in range(split.shares[replica]):
                yield split.start(replica) + i, place * split.block + i


def _on_host(leaf: Any) -> np.ndarray:
    """Return this worker's blocks of an array, one after another."""
    if isinstance(leaf, np.ndarray):
        return leaf
    shards = {shard.index[0].start or 0 if shard.index else 0: shard.data for shard in leaf.addressable_shards}
    return np.concatenate([np.asarray(shards[start]) for start in sorted(shards)])


def _name(path: Sequence[Any]) -> str:
    """Return what the user calls an array of a batch, given its place in (x, y, sample_weight)."""
    first, *rest = path or (None,)
    index = getattr(first, "idx", None)
    name = _PARTS[index] if index is not None and index < len(_PARTS) else _PARTS[0]
    rest = list(rest) if index is not None else list(path)
    return name + jax.tree_util.keystr(tuple(rest))


def inputs_not_finite(strategy: StrategyLike, rows: RowsOfBatch) -> dict[str, list[int]]:
    """Return which rows of the global batch hold NaN or infinity, by the name of the array. All workers call it.

    Args:
        strategy: Whose batch it is.
        rows: This worker's rows.
    """
    found: dict[str, set[int]] = {}
    for own in strategy.from_all("rows that are not finite", rows.not_finite()):
        for name, numbers in own.items():
            found.setdefault(name, set()).update(numbers)
    return {name: sorted(numbers) for name, numbers in found.items()}


def rows_at_fault(
    mesh: ReplicaMesh, batch: GlobalBatch, before: GlobalBatch | None, is_faulty: Callable[[GlobalBatch], bool]
) -> Faulty | None:
    """Return the rows that make a step compute NaN or infinity, each among rows that do not.

    Args:
        mesh: Where the batch lies.
        batch: The batch of a step that does.
        before: The batch of the step before, which did not; None if there is none.
        is_faulty: Runs the step on a batch, and returns whether it does. All workers call it in the same way.

    Returns:
        The rows; None if no rows are at fault, or if the faulty rows cannot be distinguished from others.
    """
    if batch.steps > 1:
        return None
    own = RowsOfBatch(mesh, batch)
    others = _harmless(own, None if before is None else RowsOfBatch(mesh, before), is_faulty)
    if others is None:
        return None
    trials = iter(range(_MOST_TRIALS))

    def is_at_fault(rows: Sequence[int]) -> bool | None:
        return None if next(trials, None) is None else is_faulty(own.only(rows, others))

    found = _search(list(range(batch.split.rows)), is_at_fault)
    if not found.rows or not is_faulty(own.only(found.rows, others)):
        return None  # together they do it, and none of them alone
    return found


def _harmless(
    own: RowsOfBatch, before: RowsOfBatch | None, is_faulty: Callable[[GlobalBatch], bool]
) -> list[np.ndarray] | None:
    """Return rows with which the step computes finite numbers; None where it does with none."""
    if before is not None and own.fits(before) and before.batch.steps == 1:
        # If it computes NaN with the rows of the step before too, no row is at fault.
        return None if is_faulty(own.only([], before.leaves)) else before.leaves
    largest = max(own.batch.split.shares)
    tried = np.unique(np.linspace(0, largest - 1, min(largest, _MOST_TRIED_ROWS)).astype(int))
    for others in (*map(own.repeated, tried.tolist()), own.plain()):
        if not is_faulty(own.only([], others)):
            return others
    return None


def _search(rows: Sequence[int], is_at_fault: Callable[[Sequence[int]], bool | None]) -> Faulty:
    """Return the rows among some, at least one of which is at fault, that are; halve them until each is alone."""
    found: list[int] = []
    parts, is_all = [rows], True
    while parts:
        part = parts.pop()
        if len(part) == 1:
            found += part
            continue
        left, right = part[: len(part) // 2], part[len(part) // 2 :]
        is_left = is_at_fault(left)
        is_right = is_at_fault(right) if is_left else True  # one of the two must be
        if is_left is None or is_right is None:
            is_all = False
            break
        parts += [each for each, is_one in ((right, is_right), (left, is_left)) if is_one]
    return Faulty(sorted(found), is_all)
