"""This worker's rows of a batch, put on its devices in blocks of equal size.

Arrays have one shape on all replicas, so short shares are filled up with copies of a row; whatever
runs on the blocks cuts them off again before it computes anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import jax
import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.structure import Composite, is_composite
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.shapes import Shape, block_shape, filled
from stratagem.mesh.trees import all_parts
from stratagem.mesh.values import DistributedValues, PerReplica, PerReplicaText

_NOT_COMPUTABLE: Final = "OSUTMm"
"""Kinds of NumPy dtypes that no device holds: objects, bytes, text, dates, durations."""


FromAll = Callable[[str, Any], list[Any]]
"""Tells all workers a value, and returns those of all; see `StrategyLike.from_all`."""


class Unlike(Composite):
    """Rows of the local replicas that differ in more than their number, and so cannot stand one after another.

    Args:
        of_replicas: The rows of each.
        refusal: The error for a use as one array.
    """

    def __init__(self, of_replicas: Sequence[np.ndarray], refusal: InputError) -> None:
        self.of_replicas = of_replicas
        self.shape = (sum(map(len, of_replicas)), *(None for _ in of_replicas[0].shape[1:]))
        self.dtype = of_replicas[0].dtype
        self._refusal = refusal

    def refused_in_batch(self) -> InputError:
        return self._refusal

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise self._refusal

    def __getitem__(self, rows: slice) -> Any:
        return self.of_replicas[0][rows]  # none, like those of the first


def in_blocks(shares: Sequence[int], block: int) -> Callable[[Any], np.ndarray]:
    """Return a function that puts the rows of an array into blocks of equal size, one for each share, valid rows first.

    Args:
        shares: Rows of each share.
        block: Rows of each block, at least the largest share.

    Returns:
        Function of an array that holds the shares one after another; its result has `len(shares) * block` rows.
    """
    if all(share == block for share in shares):
        return np.asarray
    ends = np.cumsum(shares)[:, None]
    # For each row of the blocks, which row of the array goes there; the last of its share goes to what is left.
    numbers = np.minimum(ends - np.asarray(shares)[:, None] + np.arange(block), ends - 1)
    numbers = np.maximum(numbers, 0).ravel()
    return lambda rows: _gathered(np.asarray(rows), numbers)


def _gathered(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the rows with these numbers; zeros where there is none to copy."""
    if len(rows) == 0:
        return np.zeros((len(numbers), *rows.shape[1:]), rows.dtype)
    return rows[numbers]


def per_replica(
    mesh: ReplicaMesh, shares: Sequence[int], local: Tree, *, from_all: FromAll, one_each: bool = False
) -> Tree:
    """Put this worker's rows of a batch on its devices as per-replica values.

    Args:
        mesh: Where to.
        shares: Rows of each replica of all workers.
        local: Structure of NumPy arrays that hold the rows of this worker's replicas one after another.
        from_all: Tells the workers the sizes of each replica's part of a ragged or sparse tensor.
        one_each: Whether each replica has one row, which becomes its value, without the axis of rows.

    Returns:
        A structure of `PerReplica` values; with one replica, of arrays. Text stays on the host. A ragged or sparse
        tensor has a `PerReplica` in the place of each of its parts.

    Raises:
        InputError: An array holds objects or dates.
    """

    def value_of(rows: Any) -> Any:
        if is_composite(rows):
            return rows[0] if one_each else rows
        return rows.reshape(rows.shape[1:]) if one_each else rows

    if mesh.size == 1:
        own = jax.tree.map(value_of, local, is_leaf=is_composite)
        return jax.tree.map(lambda leaf: _on_only_device(mesh, np.asarray(leaf)), own)
    block = max(1, *shares)
    uneven = tuple(shares) if any(share != block for share in shares) else None
    arranged = in_blocks([shares[replica] for replica in mesh.local_replicas], block)

    ends = list(itertools.accumulate(shares[replica] for replica in mesh.local_replicas))

    def placed(leaf: Any) -> DistributedValues:
        if isinstance(leaf, Unlike):
            return _of_parts(mesh, leaf.of_replicas, shares, from_all)
        if is_composite(leaf):
            parts = [value_of(leaf[end - shares[i] : end]) for i, end in zip(mesh.local_replicas, ends, strict=True)]
            return _of_parts(mesh, parts, shares, from_all)
        if _is_text(leaf):
            return PerReplicaText([value_of(part) for part in np.split(leaf, ends[:-1])], mesh)
        rows = arranged(leaf)
        if one_each:
            return stacked(mesh, rows)
        shapes = None if uneven is None else tuple([(share, *rows.shape[1:]) for share in uneven])
        return stacked(mesh, rows.reshape(len(mesh.local_replicas), block, *rows.shape[1:]), shapes)

    return jax.tree.map(placed, local, is_leaf=is_composite)


def _of_parts(mesh: ReplicaMesh, parts: Sequence[Tree], shares: Sequence[int], from_all: FromAll) -> Tree:
    """Put a structure of arrays for each of this worker's replicas on its devices; the sizes may differ."""
    columns, rebuilt = zip(*map(all_parts, parts), strict=True)
    own = [[list(leaf.shape) for leaf in leaves] for leaves in columns]
    told = from_all("sizes of ragged rows", own) if mesh.multi_process else [own]
    shapes = [[tuple(shape) for shape in sizes] for worker in told for sizes in worker]
    by_leaf = zip(zip(*columns, strict=True), zip(*shapes, strict=True), strict=True)
    rows = tuple(shares)
    return rebuilt[0]([of_components(mesh, leaves, sizes, rows) for leaves, sizes in by_leaf])


def _is_text(leaf: np.ndarray) -> bool:
    return leaf.dtype.hasobject and all(isinstance(item, bytes) for item in leaf.flat)


def _on_only_device(mesh: ReplicaMesh, leaf: np.ndarray) -> Any:
    return leaf.view(EagerArray) if _is_text(leaf) else mesh.replicate(_computable(leaf))


def of_components(
    mesh: ReplicaMesh, components: Sequence[np.ndarray], shapes: Sequence[Shape], rows: tuple[int, ...] | None = None
) -> DistributedValues:
    """Put one array for each of this worker's replicas on its devices as one per-replica value. Text stays on the host.

    Args:
        mesh: Where to.
        components: The arrays.
        shapes: The shapes on all replicas of all workers.
        rows: See `DistributedValues`.

    Raises:
        InputError: The arrays hold objects or dates.
    """
    if all(map(_is_text, components)):
        return PerReplicaText(components, mesh)
    block = block_shape(shapes)
    blocks = np.stack([filled(component, block) for component in components])
    return stacked(mesh, blocks, tuple(shapes) if len(set(shapes)) > 1 else None, rows)


def stacked(
    mesh: ReplicaMesh,
    components: np.ndarray,
    shapes: tuple[Shape, ...] | None = None,
    rows: tuple[int, ...] | None = None,
) -> PerReplica:
    """Put the components of this worker's replicas on its devices as one per-replica value.

    Args:
        mesh: Where to.
        components: Array whose first axis is the local replica.
        shapes: The shape of each replica's component where they differ.
        rows: See `DistributedValues`.

    Raises:
        InputError: The array holds text or objects.
    """
    # Only on a mesh of one replica do blocks stay on the host, and there values are plain arrays.
    return PerReplica(cast(jax.Array, mesh.shard_blocks(_computable(components))), mesh, shapes, rows=rows)


def _computable(leaf: np.ndarray) -> np.ndarray:
    if leaf.dtype.kind in _NOT_COMPUTABLE:
        raise InputError(
            f"A component of the batch has dtype {leaf.dtype} and shape {leaf.shape}, which no device can hold.",
            "Turn it into numbers before the strategy gets it, for example text into ids, or leave it out.",
        )
    return leaf
